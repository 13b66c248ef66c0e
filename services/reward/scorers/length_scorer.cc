#include "services/reward/scorers/length_scorer.h"

#include <algorithm>

namespace freshet {
namespace {

// Share of `margin` covered by `excess` tokens beyond a bound: 0 at the bound, 1 at `margin` and
// beyond.
double ShareOfMargin(int64_t excess, int64_t margin) {
  if (excess <= 0) return 0.0;
  if (excess >= margin) return 1.0;
  return static_cast<double>(excess) / static_cast<double>(margin);
}

}  // namespace

absl::StatusOr<ComponentScore> LengthScorer::Score(const ScoreInput& input) const {
  const int64_t tokens = input.completion_tokens;
  if (shape_ == LengthShape::kSoftOverlong) {
    // Subtracted from 0.0, so that the score is 0 rather than -0 without punishment.
    return ComponentScore{0.0 -
                          ShareOfMargin(tokens - (max_tokens_ - margin_tokens_), margin_tokens_)};
  }
  const int64_t outside = std::max(min_tokens_ - tokens, tokens - max_tokens_);
  return ComponentScore{1.0 - ShareOfMargin(outside, margin_tokens_)};
}

}  // namespace freshet
