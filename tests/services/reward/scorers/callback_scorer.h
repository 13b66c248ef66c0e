#ifndef FRESHET_TESTS_SERVICES_REWARD_SCORERS_CALLBACK_SCORER_H_
#define FRESHET_TESTS_SERVICES_REWARD_SCORERS_CALLBACK_SCORER_H_

#include <functional>
#include <utility>

#include "services/reward/scorers/scorer.h"

namespace freshet {

// A scorer that calls a function. Thread-safe if the function is.
class CallbackScorer final : public Scorer {
 public:
  using Function = std::function<absl::StatusOr<ComponentScore>(const ScoreInput&)>;
  explicit CallbackScorer(Function function) : function_(std::move(function)) {}
  absl::StatusOr<ComponentScore> Score(const ScoreInput& input) const override {
    return function_(input);
  }

 private:
  const Function function_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SERVICES_REWARD_SCORERS_CALLBACK_SCORER_H_
