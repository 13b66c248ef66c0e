#ifndef FRESHET_TESTS_SIMULATION_SIMULATED_LEARNER_H_
#define FRESHET_TESTS_SIMULATION_SIMULATED_LEARNER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "trainer/service/learner_factory.h"

namespace freshet {

struct SimulatedLearnerOptions {
  double step_seconds = 0.02;  // that training one step takes, its bookkeeping included
  // Called for every step trained, redone ones included.
  std::function<void(int64_t step, const std::vector<TrainGroup>&)> on_step;
};

// A model whose weights are the multiset of the uids that it was trained on, as text: "uid count"
// lines in order. So the final weights themselves say what was trained on how often, through every
// crash and redo. Takes the time that is asked for.
class SimulatedLearner final : public Learner {
 public:
  explicit SimulatedLearner(SimulatedLearnerOptions options) : options_(std::move(options)) {}

  // Weights of a checkpoint directory. DATA_LOSS when they are not such a text.
  absl::Status Load(const std::string& checkpoint);
  absl::StatusOr<TrainStepResult> TrainStep(int64_t step,
                                            const std::vector<TrainGroup>& groups) override;
  std::string_view Arena() const override { return arena_; }
  absl::StatusOr<std::shared_ptr<const LearnerState>> Snapshot() const override;

 private:
  void WriteArena();

  const SimulatedLearnerOptions options_;
  std::map<std::string, int64_t> trained_;  // by uid
  std::string arena_ = "uids\n";
};

// Makes them for any job, whose model must be one with `init: random`.
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
