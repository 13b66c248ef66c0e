#ifndef FRESHET_TESTS_ROLLOUT_OPENAI_HOOKED_TOKENIZER_H_
#define FRESHET_TESTS_ROLLOUT_OPENAI_HOOKED_TOKENIZER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "text/tokenizer.h"

namespace freshet {

// A tokenizer that calls `on_encode` before it encodes a prompt, and whose chat templates can be
// made unavailable. Thread-safe like the tokenizer, once the members are set.
class HookedTokenizer final : public Tokenizer {
 public:
  std::function<void()> on_encode;
  std::atomic<bool> chat_available = true;

  explicit HookedTokenizer(std::unique_ptr<Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              SpecialTokens special) const override {
    if (on_encode) on_encode();
    return tokenizer_->Encode(text, special);
  }
  absl::StatusOr<std::vector<int32_t>> EncodeWithSpecial(std::string_view text,
                                                         SpecialTokens special) const override {
    if (on_encode) on_encode();
    return tokenizer_->EncodeWithSpecial(text, special);
  }
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const override {
    return tokenizer_->Decode(ids, skip_special);
  }
  std::unique_ptr<StreamDecoder> MakeStreamDecoder(bool skip_special) const override {
    return tokenizer_->MakeStreamDecoder(skip_special);
  }
  absl::StatusOr<std::string> RenderChat(const ChatRequest& request) const override {
    return tokenizer_->RenderChat(request);
  }
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatRequest& request) const override {
    if (!chat_available) return absl::UnavailableError("no thread is free");
    return tokenizer_->EncodeChat(request);
  }
  bool ChatAvailable() const override { return chat_available; }
  int64_t longest_token_bytes() const override { return tokenizer_->longest_token_bytes(); }
  int32_t vocab_size() const override { return tokenizer_->vocab_size(); }
  std::optional<int32_t> bos_id() const override { return tokenizer_->bos_id(); }
  std::optional<int32_t> eos_id() const override { return tokenizer_->eos_id(); }
  const std::vector<TokenizerFile>& Files() const override { return tokenizer_->Files(); }

 private:
  const std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_ROLLOUT_OPENAI_HOOKED_TOKENIZER_H_
