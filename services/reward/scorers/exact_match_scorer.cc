#include "services/reward/scorers/exact_match_scorer.h"

#include "base/str_cat.h"
#include "services/reward/scorers/ascii_case.h"

namespace freshet {
namespace {

std::string_view Strip(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace

absl::StatusOr<ComponentScore> ExactMatchScorer::Score(const ScoreInput& input) const {
  const absl::StatusOr<std::string> expected = expected_.Render(input.attributes);
  if (!expected.ok()) return FailedPrecondition(Message(expected.status()), " in the row");
  std::string_view left = input.completion;
  std::string_view right = *expected;
  if (options_.strip_space) {
    left = Strip(left);
    right = Strip(right);
  }
  const bool equal = options_.ignore_case ? AsciiLower(left) == AsciiLower(right) : left == right;
  return ComponentScore{equal ? 1.0 : 0.0};
}

}  // namespace freshet
