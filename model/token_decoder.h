#ifndef FRESHET_MODEL_TOKEN_DECODER_H_
#define FRESHET_MODEL_TOKEN_DECODER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace freshet {

// One step from a list of token texts to text, as tokenizer.json describes it.
struct DecodeStep {
  enum class Kind {
    kReplace,       // `pattern` by `content` in every token
    kByteFallback,  // runs of "<0xHH>" become the characters that their bytes spell
    kFuse,          // all tokens become one
    kStrip,         // up to `start` leading and `stop` trailing `content` off every token
    kMetaspace,     // `pattern` becomes a space; in the first token it goes when `strip_first`
  };
  Kind kind = Kind::kFuse;
  std::string pattern;
  std::string content;
  int64_t start = 0;
  int64_t stop = 0;
  bool strip_first = true;
};

// Applies the steps in order and joins the tokens. The result is valid UTF-8 when the tokens are:
// each byte of a run that spells no valid text becomes U+FFFD.
std::string DecodeTokens(std::vector<std::string> tokens, const std::vector<DecodeStep>& steps);

// `text` with every `pattern` (not empty) replaced, left to right.
std::string ReplaceAll(const std::string& text, const std::string& pattern,
                       const std::string& content);

}  // namespace freshet

#endif  // FRESHET_MODEL_TOKEN_DECODER_H_
