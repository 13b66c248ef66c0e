#include "rollout/engine/stop_strings.h"

#include <algorithm>
#include <utility>

namespace freshet {

StopMatcher::StopMatcher(const std::vector<std::string>& texts,
                         std::unique_ptr<StreamDecoder> decoder)
    : texts_(texts), decoder_(std::move(decoder)) {
  for (const std::string& text : texts) longest_ = std::max(longest_, text.size());
}

bool StopMatcher::Add(int32_t id) {
  tail_ += decoder_->Push(id);
  const bool found = std::any_of(texts_.begin(), texts_.end(), [this](const std::string& text) {
    return tail_.find(text) != std::string::npos;
  });
  if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - (longest_ - 1));
  return found;
}

StopStrings::StopStrings(std::vector<std::string> texts, const Tokenizer& tokenizer)
    : texts_(std::move(texts)), tokenizer_(tokenizer) {}

std::unique_ptr<StopMatcher> StopStrings::MakeMatcher() const {
  return std::make_unique<StopMatcher>(texts_,
                                       tokenizer_.MakeStreamDecoder(/*skip_special=*/false));
}

}  // namespace freshet
