#ifndef FRESHET_TRAINER_POLICY_LEARNER_FACTORY_H_
#define FRESHET_TRAINER_POLICY_LEARNER_FACTORY_H_

#include "base/clock.h"
#include "trainer/service/learner_factory.h"

namespace freshet {

// Creates PolicyLearners: Llama-family models on LibTorch.
class PolicyLearnerFactory final : public LearnerFactory {
 public:
  // `clock` must outlive the learners.
  explicit PolicyLearnerFactory(const Clock& clock) : clock_(clock) {}
  absl::StatusOr<ModelBundle> Describe(const job::v1::JobSpec& spec,
                                       const DataRoots& roots) override;
  absl::StatusOr<StartedLearner> Start(const LearnerStart& start) override;

 private:
  const Clock& clock_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_POLICY_LEARNER_FACTORY_H_
