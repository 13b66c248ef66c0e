#include "services/reward/scorers/contains_scorer.h"

#include "base/str_cat.h"
#include "services/reward/scorers/ascii_case.h"

namespace freshet {
namespace {

// Counts occurrences of `text` (not empty), up to `limit`.
int64_t CountUpTo(std::string_view completion, std::string_view text, int64_t limit) {
  int64_t count = 0;
  for (size_t at = completion.find(text); at != std::string_view::npos && count < limit;
       at = completion.find(text, at + text.size())) {
    ++count;
  }
  return count;
}

}  // namespace

absl::StatusOr<ComponentScore> ContainsScorer::Score(const ScoreInput& input) const {
  const absl::StatusOr<std::string> text = text_.Render(input.attributes);
  if (!text.ok()) return FailedPrecondition(Message(text.status()), " in the row");
  if (text->empty()) return FailedPrecondition("the text to look for is empty for this row");
  const int64_t count = ignore_case_
                            ? CountUpTo(AsciiLower(input.completion), AsciiLower(*text), min_count_)
                            : CountUpTo(input.completion, *text, min_count_);
  return ComponentScore{count >= min_count_ ? 1.0 : 0.0};
}

}  // namespace freshet
