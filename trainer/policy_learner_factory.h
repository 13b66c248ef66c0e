#ifndef FRESHET_TRAINER_POLICY_LEARNER_FACTORY_H_
#define FRESHET_TRAINER_POLICY_LEARNER_FACTORY_H_

#include <memory>

#include "base/clock.h"
#include "job/loss_spec.h"
#include "trainer/learner/frozen_learner.h"
#include "trainer/learner/policy_learner.h"
#include "trainer/service/learner_factory.h"

namespace freshet {

// Loads the weights that `start` names into a new learner of `model` with its tokenizer: those of
// the checkpoint with its optimizer state and the frozen reference, or the model's own, followed by
// the warm-up. CANCELLED if `start.progress` stopped the warm-up. INTERNAL: LibTorch's errors.
absl::Status LoadWeights(const LearnerStart& start, const ModelSetup& model, bool needs_reference,
                         PolicyLearner& learner);

// The learner of a job of kind generate. Errors of FrozenLearner::Create.
absl::StatusOr<std::unique_ptr<FrozenLearner>> MakeFrozenLearner(const job::v1::JobSpec& spec,
                                                                 const ModelSetup& model);

// The loss of a resolved job. INVALID_ARGUMENT: contradictory keys.
absl::StatusOr<LossSpec> LossOfJob(const job::v1::JobSpec& spec);

// Processors of all ranks together, which MakeLearnerOptions divides. `on_other_hosts`: each rank
// has as many as this process.
int ProcessorsOfRanks(const job::v1::JobSpec& spec, bool on_other_hosts);

// Creates PolicyLearners, which use LibTorch, and FrozenLearners for jobs of kind generate.
class PolicyLearnerFactory final : public LearnerFactory {
 public:
  // `clock` must outlive the learners.
  explicit PolicyLearnerFactory(const Clock& clock) : clock_(clock) {}
  absl::StatusOr<ModelBundle> Describe(const job::v1::JobSpec& spec,
                                       const DataRoots& roots) override;
  absl::StatusOr<StartedLearner> Start(const LearnerStart& start) override;
  absl::Status UseRanks(std::shared_ptr<JoinedRanks> joined) override;
  absl::Status RunRank(UniqueFd socket, const StoreOpener& open_store) override;

 private:
  const Clock& clock_;
  std::shared_ptr<JoinedRanks> joined_;  // null: a job's ranks are child processes
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_POLICY_LEARNER_FACTORY_H_
