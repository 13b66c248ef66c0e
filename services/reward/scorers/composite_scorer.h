#ifndef FRESHET_SERVICES_REWARD_SCORERS_COMPOSITE_SCORER_H_
#define FRESHET_SERVICES_REWARD_SCORERS_COMPOSITE_SCORER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/trajectory.h"
#include "services/reward/scorers/score_observer.h"
#include "services/reward/scorers/scorer.h"

namespace freshet {

// Weighted sum of named scorers. Thread-compatible: const methods may run concurrently.
class CompositeScorer {
 public:
  // When a component counts, and what it may cost.
  struct Condition {
    std::vector<std::string> tasks;  // for samples of these tasks (kTaskField); empty: all
    // If the component of this name, which has no such condition, is above 0. Otherwise the scorer
    // is not called, and the value is 0. "": always.
    std::string only_if;
    int64_t max_calls = 0;  // of the job to the component's server; 0: no limit
  };
  void Add(std::string name, double weight, std::unique_ptr<Scorer> scorer, Condition condition);
  void Add(std::string name, double weight, std::unique_ptr<Scorer> scorer) {
    Add(std::move(name), weight, std::move(scorer), {});
  }
  // Sets the observer of all later Score calls; may be null.
  void SetObserver(std::shared_ptr<ScoreObserver> observer) { observer_ = std::move(observer); }

  // The components share the input's timeout. Reward is sum(weight * value); `components` holds the
  // unweighted values by name, and their parts as "NAME/PART"; the steps are weighted. The outcome
  // is kWrongFormat if any component's is. Only components of the sample's task count.
  //
  // If any component fails or gives a value that is not finite or beyond 1e30, the whole call fails
  // with the component's code and its name in the message (FailedComponent): a failure is never a
  // reward.
  absl::StatusOr<freshet::Score> Score(const ScoreInput& input) const;

 private:
  struct Component {
    std::string name;
    double weight = 0;
    std::unique_ptr<Scorer> scorer;
    Condition condition;
    // Failures since it last gave a value, other than transient ones (IsTransient).
    std::unique_ptr<std::atomic<int64_t>> failures = std::make_unique<std::atomic<int64_t>>(0);
  };
  absl::StatusOr<freshet::Score> AddUp(const ScoreInput& input) const;
  // A finite value, or why there is none.
  absl::StatusOr<ComponentScore> Ask(const Component& component, const ScoreInput& input) const;

  std::vector<Component> components_;  // those without only_if first
  std::shared_ptr<ScoreObserver> observer_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SCORERS_COMPOSITE_SCORER_H_
