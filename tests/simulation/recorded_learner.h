#ifndef FRESHET_TESTS_SIMULATION_RECORDED_LEARNER_H_
#define FRESHET_TESTS_SIMULATION_RECORDED_LEARNER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/history.h"
#include "trainer/service/learner_factory.h"

namespace freshet {

// A learner that records its batches. `history` must outlive it.
class RecordedLearner final : public Learner {
 public:
  RecordedLearner(std::shared_ptr<Learner> learner, History& history)
      : learner_(std::move(learner)), history_(history) {}

  absl::StatusOr<TrainStepResult> TrainStep(int64_t step,
                                            const std::vector<TrainGroup>& groups) override {
    history_.AddTrain(step, groups);
    return learner_->TrainStep(step, groups);
  }
  absl::StatusOr<std::string_view> Arena() const override { return learner_->Arena(); }
  absl::StatusOr<std::shared_ptr<const LearnerState>> Snapshot() const override {
    return learner_->Snapshot();
  }
  std::shared_ptr<WeightShards> Shards() const override { return learner_->Shards(); }
  std::vector<RankState> Ranks() const override { return learner_->Ranks(); }
  std::vector<std::string> LostRanks() const override { return learner_->LostRanks(); }
  bool StateLost() const override { return learner_->StateLost(); }
  std::string WaitsFor() const override { return learner_->WaitsFor(); }
  void Stop() override { learner_->Stop(); }

 private:
  const std::shared_ptr<Learner> learner_;
  History& history_;
};

// Wraps the learners of another factory. Both arguments must outlive it.
class RecordedLearnerFactory final : public LearnerFactory {
 public:
  RecordedLearnerFactory(LearnerFactory& learners, History& history)
      : learners_(learners), history_(history) {}

  absl::StatusOr<ModelBundle> Describe(const job::v1::JobSpec& spec,
                                       const DataRoots& roots) override {
    return learners_.Describe(spec, roots);
  }
  absl::StatusOr<StartedLearner> Start(const LearnerStart& start) override {
    absl::StatusOr<StartedLearner> started = learners_.Start(start);
    if (started.ok()) {
      started->learner = std::make_unique<RecordedLearner>(std::move(started->learner), history_);
    }
    return started;
  }

 private:
  LearnerFactory& learners_;
  History& history_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_SIMULATION_RECORDED_LEARNER_H_
