#include "rollout/openai/choice_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace freshet::openai {
namespace {

// The length of the longest proper prefix of `stop` that `text` ends with.
size_t BegunBytes(std::string_view text, std::string_view stop) {
  for (size_t size = std::min(text.size(), stop.size() - 1); size > 0; --size) {
    if (text.ends_with(stop.substr(0, size))) return size;
  }
  return 0;
}

}  // namespace

ChoiceText::ChoiceText(const std::vector<std::string>& stops, bool include_stop,
                       std::unique_ptr<StreamDecoder> decoder)
    : stops_(stops), include_stop_(include_stop), decoder_(std::move(decoder)) {}

std::string ChoiceText::Push(int32_t id) {
  if (stopped_by_.has_value()) return "";
  held_ += decoder_->Push(id);
  return Release(/*all=*/false);
}

std::string ChoiceText::Finish() {
  if (stopped_by_.has_value()) return "";
  held_ += decoder_->Finish();
  return Release(/*all=*/true);
}

std::string ChoiceText::Release(bool all) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at >= first) continue;
    first = at;
    stopped_by_ = stop;
  }
  size_t visible = held_.size();
  if (stopped_by_.has_value()) {
    visible = first + (include_stop_ ? stopped_by_->size() : 0);
  } else if (!all) {
    for (const std::string& stop : stops_) {
      visible = std::min(visible, held_.size() - BegunBytes(held_, stop));
    }
  }
  std::string text = held_.substr(0, visible);
  held_.erase(0, visible);
  return text;
}

std::string TokenText(const Tokenizer& tokenizer, int32_t id) {
  // Some decoders drop the space before the first word of a text.
  const std::string once = tokenizer.Decode({id}, /*skip_special=*/false);
  const std::string twice = tokenizer.Decode({id, id}, /*skip_special=*/false);
  return twice.starts_with(once) ? twice.substr(once.size()) : once;
}

}  // namespace freshet::openai
