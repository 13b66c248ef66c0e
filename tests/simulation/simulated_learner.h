#ifndef FRESHET_TESTS_SIMULATION_SIMULATED_LEARNER_H_
#define FRESHET_TESTS_SIMULATION_SIMULATED_LEARNER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "trainer/service/learner_factory.h"

namespace freshet {

struct SimulatedLearnerOptions {
  double step_seconds = 0.02;  // duration of a step, bookkeeping included
  // Called for each trained step, including redone ones.
  std::function<void(int64_t step, const std::vector<TrainGroup>&)> on_step;
};

// A model whose weights are the multiset of uids it was trained on, as sorted "uid count" lines.
// The final weights therefore show how often each sample was trained, across crashes and redos.
// Each step takes step_seconds.
class SimulatedLearner final : public SingleProcessLearner {
 public:
  explicit SimulatedLearner(SimulatedLearnerOptions options) : options_(std::move(options)) {}

  // Loads a checkpoint directory. Returns DATA_LOSS if the weights cannot be parsed.
  absl::Status Load(const std::string& checkpoint);
  absl::StatusOr<TrainStepResult> TrainStep(int64_t step,
                                            const std::vector<TrainGroup>& groups) override;
  absl::StatusOr<std::string_view> Arena() const override { return arena_; }
  absl::StatusOr<std::shared_ptr<const LearnerState>> Snapshot() const override;

 private:
  void WriteArena();

  const SimulatedLearnerOptions options_;
  std::map<std::string, int64_t> trained_;  // count by uid
  std::string arena_ = "uids\n";
};

// Creates simulated learners for any job whose model has `init: random`.
class SimulatedLearnerFactory final : public LearnerFactory {
 public:
  explicit SimulatedLearnerFactory(SimulatedLearnerOptions options)
      : options_(std::move(options)) {}
  absl::StatusOr<ModelBundle> Describe(const job::v1::JobSpec& spec,
                                       const DataRoots& roots) override;
  absl::StatusOr<StartedLearner> Start(const LearnerStart& start) override;

 private:
  const SimulatedLearnerOptions options_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SIMULATION_SIMULATED_LEARNER_H_
