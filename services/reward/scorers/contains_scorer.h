#ifndef FRESHET_SERVICES_REWARD_SCORERS_CONTAINS_SCORER_H_
#define FRESHET_SERVICES_REWARD_SCORERS_CONTAINS_SCORER_H_

#include <cstdint>
#include <utility>

#include "base/text_template.h"
#include "services/reward/scorers/scorer.h"

namespace freshet {

// 1 if the rendered `text` occurs at least `min_count` times in the completion, else 0. Compares
// bytes; optionally ignores the case of ASCII letters. Occurrences do not overlap. Thread-safe.
class ContainsScorer final : public Scorer {
 public:
  // Requires min_count >= 1.
  ContainsScorer(TextTemplate text, int64_t min_count, bool ignore_case)
      : text_(std::move(text)), min_count_(min_count), ignore_case_(ignore_case) {}
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override;

 private:
  const TextTemplate text_;
  const int64_t min_count_;
  const bool ignore_case_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_CONTAINS_SCORER_H_
