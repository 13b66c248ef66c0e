#ifndef FRESHET_TRAINER_LEARNER_FROZEN_LEARNER_H_
#define FRESHET_TRAINER_LEARNER_FROZEN_LEARNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "model/model_setup.h"
#include "trainer/learner/learner.h"
#include "weights/manifest.h"

namespace freshet {

// The learner of a job of kind generate: holds the weights to publish in host memory and never
// changes them, so it has no gradients and no optimizer state.
class FrozenLearner final : public SingleProcessLearner {
 public:
  // The model's own weights, or random ones from `seed` if it has no files, in fp32 or bf16.
  // INVALID_ARGUMENT: a tensor is missing or misshapen. RESOURCE_EXHAUSTED: no memory for them.
  // INTERNAL: LibTorch's errors.
  static absl::StatusOr<std::unique_ptr<FrozenLearner>> Create(const ModelSetup& model,
                                                               uint64_t seed, bool bf16);

  // Counts the loss-bearing tokens.
  absl::StatusOr<TrainStepResult> TrainStep(int64_t step,
                                            const std::vector<TrainGroup>& groups) override;
  absl::StatusOr<std::string_view> Arena() const override;
  // Without tensors: a resume takes the weights from the job's model again.
  absl::StatusOr<std::shared_ptr<const LearnerState>> Snapshot() const override;

  const std::vector<WeightEntry>& entries() const { return entries_; }
  int64_t num_parameters() const { return num_parameters_; }

 private:
  FrozenLearner() = default;

  std::vector<std::byte> arena_;
  std::vector<WeightEntry> entries_;
  int64_t num_parameters_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_FROZEN_LEARNER_H_
