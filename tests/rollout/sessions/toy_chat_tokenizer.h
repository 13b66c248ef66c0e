#ifndef FRESHET_TESTS_ROLLOUT_SESSIONS_TOY_CHAT_TOKENIZER_H_
#define FRESHET_TESTS_ROLLOUT_SESSIONS_TOY_CHAT_TOKENIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "base/json_document.h"
#include "text/tokenizer.h"

namespace freshet {

// Tokens are bytes, and kEnd. A chat is the first letter of each role, the content, kEnd and a
// newline; an answer begins with "a".
class ToyChatTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kEnd = 256;

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, SpecialTokens) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  absl::StatusOr<std::vector<int32_t>> EncodeWithSpecial(std::string_view text,
                                                         SpecialTokens special) const override {
    return Encode(text, special);
  }
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < kEnd) text += static_cast<char>(id);
      if (id == kEnd && !skip_special) text += "<end>";
    }
    return text;
  }
  std::unique_ptr<StreamDecoder> MakeStreamDecoder(bool skip_special) const override {
    return std::make_unique<Stream>(*this, skip_special);
  }
  absl::StatusOr<std::string> RenderChat(const ChatRequest& request) const override {
    const absl::StatusOr<std::vector<int32_t>> ids = EncodeChat(request);
    if (!ids.ok()) return ids.status();
    return Decode(*ids, /*skip_special=*/false);
  }
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const ChatRequest& request) const override {
    const absl::StatusOr<nlohmann::json> messages = ParseJson(request.messages, "messages");
    if (!messages.ok()) return messages.status();
    std::vector<int32_t> ids;
    for (const nlohmann::json& message : *messages) {
      ids.push_back(message["role"].get<std::string>()[0]);
      for (const char c : message["content"].get<std::string>()) ids.push_back(c);
      ids.push_back(kEnd);
      ids.push_back('\n');
    }
    if (request.add_generation_prompt) ids.push_back('a');
    return ids;
  }
  bool ChatAvailable() const override { return true; }
  int64_t longest_token_bytes() const override { return 5; }
  int32_t vocab_size() const override { return kEnd + 1; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> eos_id() const override { return kEnd; }
  const std::vector<TokenizerFile>& Files() const override { return files_; }

 private:
  class Stream final : public StreamDecoder {
   public:
    Stream(const ToyChatTokenizer& tokenizer, bool skip) : tokenizer_(tokenizer), skip_(skip) {}
    std::string Push(int32_t id) override { return tokenizer_.Decode({id}, skip_); }
    std::string Finish() override { return ""; }

   private:
    const ToyChatTokenizer& tokenizer_;
    const bool skip_;
  };

  const std::vector<TokenizerFile> files_{};
};

}  // namespace freshet

#endif  // FRESHET_TESTS_ROLLOUT_SESSIONS_TOY_CHAT_TOKENIZER_H_
