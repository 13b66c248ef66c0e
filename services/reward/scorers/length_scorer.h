#ifndef FRESHET_SERVICES_REWARD_SCORERS_LENGTH_SCORER_H_
#define FRESHET_SERVICES_REWARD_SCORERS_LENGTH_SCORER_H_

#include <cstdint>

#include "services/reward/scorers/scorer.h"

namespace freshet {

enum class LengthShape {
  // 1 within [min_tokens, max_tokens]; outside, falls linearly to 0 at a distance of margin_tokens
  // (at once if margin_tokens is 0).
  kWindow,
  // Soft overlong punishment of DAPO (arXiv:2503.14476, equation 13), with L_max = max_tokens and
  // L_cache = margin_tokens: 0 up to L_max - L_cache, then falls linearly to -1 at L_max, and -1
  // beyond. min_tokens is not used.
  kSoftOverlong,
};

// Scores the number of response tokens. Thread-safe.
class LengthScorer final : public Scorer {
 public:
  // Requires 0 <= min_tokens <= max_tokens, margin_tokens >= 0, and margin_tokens <= max_tokens for
  // kSoftOverlong.
  LengthScorer(LengthShape shape, int64_t min_tokens, int64_t max_tokens, int64_t margin_tokens)
      : shape_(shape),
        min_tokens_(min_tokens),
        max_tokens_(max_tokens),
        margin_tokens_(margin_tokens) {}
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override;

 private:
  const LengthShape shape_;
  const int64_t min_tokens_;
  const int64_t max_tokens_;
  const int64_t margin_tokens_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_LENGTH_SCORER_H_
