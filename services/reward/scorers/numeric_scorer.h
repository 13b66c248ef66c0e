#ifndef FRESHET_SERVICES_REWARD_SCORERS_NUMERIC_SCORER_H_
#define FRESHET_SERVICES_REWARD_SCORERS_NUMERIC_SCORER_H_

#include <utility>

#include "base/text_template.h"
#include "services/reward/scorers/scorer.h"

namespace freshet {

// Where a completion states its number.
enum class NumberPlace {
  kAny,         // after "####" when it occurs, else in a box when one occurs, else the last number
  kLastHash,    // on the line after the last "####"
  kBoxed,       // in the last "\boxed{}"
  kLastNumber,  // the last number of the text
};

// 1 when the completion's number differs from the gold number by at most `tolerance`, else 0. With
// a tolerance of 0 decimals are compared, not doubles (forms: decimal_text.h). After "####" and in
// a box exactly one number must stand, so that several guesses are not one answer; without it the
// outcome is kWrongFormat.
//
// The gold number is the one on the line after the last "####" of the rendered `gold` text, or of
// the whole text without "####"; FAILED_PRECONDITION unless there is exactly one. Thread-safe.
class NumericScorer final : public Scorer {
 public:
  NumericScorer(TextTemplate gold, NumberPlace place, double tolerance)
      : gold_(std::move(gold)), place_(place), tolerance_(tolerance) {}
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override;

 private:
  const TextTemplate gold_;
  const NumberPlace place_;
  const double tolerance_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_NUMERIC_SCORER_H_
