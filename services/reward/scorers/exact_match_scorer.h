#ifndef FRESHET_SERVICES_REWARD_SCORERS_EXACT_MATCH_SCORER_H_
#define FRESHET_SERVICES_REWARD_SCORERS_EXACT_MATCH_SCORER_H_

#include <utility>

#include "base/text_template.h"
#include "services/reward/scorers/scorer.h"

namespace freshet {

struct ExactMatchOptions {
  bool strip_space = true;   // ignores ASCII white space at both ends of both texts
  bool ignore_case = false;  // ASCII letters only
};

// 1 if the completion equals the rendered `expected` text, else 0. Thread-safe.
class ExactMatchScorer final : public Scorer {
 public:
  ExactMatchScorer(TextTemplate expected, const ExactMatchOptions& options)
      : expected_(std::move(expected)), options_(options) {}
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override;

 private:
  const TextTemplate expected_;
  const ExactMatchOptions options_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_EXACT_MATCH_SCORER_H_
