#include "trainer/learner/frozen_learner.h"

#include <exception>
#include <new>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/model_weights.h"
#include "model/parameter_layout.h"
#include "model/transformer.h"
#include "trainer/learner/microbatches.h"
#include "trainer/learner/weight_entries.h"

namespace freshet {

absl::StatusOr<std::unique_ptr<FrozenLearner>> FrozenLearner::Create(const ModelSetup& model,
                                                                     uint64_t seed, bool bf16) try {
  FRESHET_RETURN_IF_ERROR(model.config.Validate());
  const ParameterLayout layout = MakeParameterLayout(model.config);
  const Dtype dtype = bf16 ? Dtype::kBf16 : Dtype::kF32;
  std::unique_ptr<FrozenLearner> learner(new FrozenLearner());
  learner->arena_.resize(static_cast<size_t>(layout.num_elements) * DtypeBytes(dtype));
  learner->entries_ = EntriesOf(layout, dtype);
  learner->num_parameters_ = layout.num_parameters;
  const at::NoGradGuard no_grad;
  const at::Tensor arena = at::from_blob(learner->arena_.data(), {layout.num_elements},
                                         bf16 ? at::kBFloat16 : at::kFloat);
  if (model.files != nullptr) {
    FRESHET_RETURN_IF_ERROR(FillArena(*model.files, layout, arena));
    return learner;
  }
  const at::Tensor numbers = bf16 ? at::zeros({layout.num_elements}, at::kFloat) : arena;
  InitializeWeights(layout, model.config.initializer_range, seed, numbers);
  if (bf16) arena.copy_(numbers);
  return learner;
} catch (const std::bad_alloc&) {
  return ResourceExhausted("no memory for the weights; see freshet plan");
} catch (const std::exception& error) {
  return TorchError(error);
}

absl::StatusOr<TrainStepResult> FrozenLearner::TrainStep(int64_t /*step*/,
                                                         const std::vector<TrainGroup>& groups) {
  TrainStepResult result;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      result.tokens_trained +=
          CountLossTokens(sample.loss_mask, 0, static_cast<int32_t>(sample.loss_mask.size()));
    }
  }
  return result;
}

absl::StatusOr<std::string_view> FrozenLearner::Arena() const {
  return std::string_view(reinterpret_cast<const char*>(arena_.data()), arena_.size());
}

absl::StatusOr<std::shared_ptr<const LearnerState>> FrozenLearner::Snapshot() const {
  return std::make_shared<const LearnerState>();
}

}  // namespace freshet
