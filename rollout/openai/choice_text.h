#ifndef FRESHET_ROLLOUT_OPENAI_CHOICE_TEXT_H_
#define FRESHET_ROLLOUT_OPENAI_CHOICE_TEXT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace freshet::openai {

// The text of a growing response: whole characters only, cut at the first stop string. Text that
// may be the beginning of a stop string is held back until the next tokens decide. Confined to one
// thread.
class ChoiceText {
 public:
  // `include_stop`: keep the stop string. The list must outlive this object.
  ChoiceText(const std::vector<std::string>& stops, bool include_stop,
             std::unique_ptr<StreamDecoder> decoder);

  // The text that becomes visible with the response's next token.
  std::string Push(int32_t id);
  // The text that becomes visible because the response has ended.
  std::string Finish();
  // The stop string that cut the text.
  const std::optional<std::string>& stopped_by() const { return stopped_by_; }

 private:
  std::string Release(bool all);

  const std::vector<std::string>& stops_;
  const bool include_stop_;
  const std::unique_ptr<StreamDecoder> decoder_;
  std::string held_;
  std::optional<std::string> stopped_by_;
};

// The text of one token by itself, with the leading space that it has within a sentence. U+FFFD
// stands for parts of characters.
std::string TokenText(const Tokenizer& tokenizer, int32_t id);

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_CHOICE_TEXT_H_
