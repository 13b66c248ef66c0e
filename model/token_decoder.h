#ifndef FRESHET_MODEL_TOKEN_DECODER_H_
#define FRESHET_MODEL_TOKEN_DECODER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace freshet {

// One step from token texts to text, as described by tokenizer.json.
struct DecodeStep {
  enum class Kind {
    kReplace,       // replaces `pattern` with `content` in every token
    kByteFallback,  // decodes runs of "<0xHH>" as UTF-8 bytes
    kFuse,          // joins all tokens into one
    kStrip,         // strips up to `start` leading and `stop` trailing `content` from every token
    kMetaspace,     // replaces `pattern` with a space; removes a leading one from the first token
                    // if `strip_first`
  };
  Kind kind = Kind::kFuse;
  std::string pattern;
  std::string content;
  int64_t start = 0;
  int64_t stop = 0;
  bool strip_first = true;
};

// Applies the steps in order and joins the tokens. If the tokens are valid UTF-8, so is the result:
// each byte of an invalid byte run becomes U+FFFD.
std::string DecodeTokens(std::vector<std::string> tokens, const std::vector<DecodeStep>& steps);

// Replaces every `pattern` (not empty) in `text`, left to right.
std::string ReplaceAll(const std::string& text, const std::string& pattern,
                       const std::string& content);

}  // namespace freshet

#endif  // FRESHET_MODEL_TOKEN_DECODER_H_
