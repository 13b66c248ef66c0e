#ifndef FRESHET_ROLLOUT_ENGINE_STOP_STRINGS_H_
#define FRESHET_ROLLOUT_ENGINE_STOP_STRINGS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace freshet {

// Finds stop strings in the text of a growing response, also where one is cut across tokens.
// Confined to one thread.
class StopMatcher {
 public:
  StopMatcher(const std::vector<std::string>& texts, std::unique_ptr<StreamDecoder> decoder);
  // Adds the response's next token. Returns whether the text contains a stop string that ends in
  // the newly completed characters.
  bool Add(int32_t id);

 private:
  const std::vector<std::string>& texts_;
  const std::unique_ptr<StreamDecoder> decoder_;
  size_t longest_ = 0;
  std::string tail_;  // the end of the text, shorter than the longest stop string
};

// The stop strings of a request. Immutable; thread-safe. The tokenizer must outlive it.
class StopStrings {
 public:
  // `texts` are not empty.
  StopStrings(std::vector<std::string> texts, const Tokenizer& tokenizer);
  // For one response. This object must outlive the matcher.
  std::unique_ptr<StopMatcher> MakeMatcher() const;

 private:
  const std::vector<std::string> texts_;
  const Tokenizer& tokenizer_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_STOP_STRINGS_H_
