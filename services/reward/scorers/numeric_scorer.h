#ifndef FRESHET_SERVICES_REWARD_SCORERS_NUMERIC_SCORER_H_
#define FRESHET_SERVICES_REWARD_SCORERS_NUMERIC_SCORER_H_

#include <utility>

#include "base/text_template.h"
#include "services/reward/scorers/scorer.h"

namespace freshet {

// Where to find the number in a completion.
enum class NumberPlace {
  kAny,         // after "####" if present, else in a box if present, else the last number
  kLastHash,    // on the line after the last "####"
  kBoxed,       // in the last "\boxed{}"
  kLastNumber,  // the last number of the text
};

// 1 if the completion's number differs from the gold number by at most `tolerance`, else 0. With
// tolerance 0, decimals are compared, not doubles (forms: decimal_text.h). After "####" and in a
// box there must be exactly one number, so that several guesses do not count as one answer;
// otherwise the outcome is kWrongFormat.
//
// The gold number is on the line after the last "####" of the rendered `gold` text, or in the whole
// text without "####". FAILED_PRECONDITION unless there is exactly one. Thread-safe.
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
