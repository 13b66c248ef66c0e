#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/tensor_convert.h"
#include "trainer/learner/model_flops.h"
#include "trainer/learner/policy_learner.h"
#include "trainer/learner/policy_learner_state.h"

namespace freshet {

absl::StatusOr<TrainStepResult> PolicyLearner::TrainStep(int64_t step,
                                                         const std::vector<TrainGroup>& groups) {
  const PolicyLearnerOptions& options = state_->options;
  FRESHET_ASSIGN_OR_RETURN(
      TrainingRows all, MakeTrainingRows(groups, options.loss.advantage, options.whole_responses));
  const size_t parts = std::min(static_cast<size_t>(options.minibatches_per_step), groups.size());
  std::vector<Minibatch> minibatches(parts);
  for (size_t t = 0; t < all.trees.size(); ++t) {
    TrainingRows& rows = minibatches[all.groups[t] * parts / groups.size()].rows;
    rows.trees.push_back(std::move(all.trees[t]));
    for (const float mask : all.columns[t].loss_mask) rows.loss_tokens += mask > 0 ? 1 : 0;
    rows.num_sequences += all.columns[t].num_sequences;
    rows.columns.push_back(std::move(all.columns[t]));
  }
  try {
    for (Minibatch& minibatch : minibatches) {
      minibatch.runs = state_->Split(minibatch.rows.trees);
      minibatch.normalizer = {static_cast<double>(minibatch.rows.loss_tokens),
                              static_cast<double>(minibatch.rows.num_sequences),
                              static_cast<double>(options.max_new_tokens)};
      // With one minibatch the policy is its own proximal policy.
      if (parts > 1 && options.loss.NeedsProximal()) {
        FRESHET_RETURN_IF_ERROR(FillProximal(minibatch));
      }
    }
    Sums sums;
    FRESHET_RETURN_IF_ERROR(TrainMinibatches(minibatches, step, sums));
    const auto tokens = static_cast<double>(std::max<int64_t>(sums.tokens, 1));
    TrainStepResult result;
    result.loss = sums.loss / static_cast<double>(parts);
    result.grad_norm = sums.grad_norm / static_cast<double>(parts);
    result.learning_rate = LearningRate(options.schedule, step);
    result.entropy = sums.entropy / tokens;
    result.kl_behavior = sums.kl_behavior / tokens;
    result.kl_ref = sums.kl_ref / tokens;
    result.ratio_clip_fraction = static_cast<double>(sums.clipped) / tokens;
    result.importance_weight_mean = sums.weight / tokens;
    result.logprob_diff = sums.logprob_diff / tokens;
    result.importance_ratios = sums.ratios;
    result.tokens_trained = sums.tokens;
    result.model_flops = sums.model_flops;
    result.advantages = std::move(all.advantages);
    result.optimizer_seconds = sums.optimizer_seconds;
    return result;
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

absl::Status PolicyLearner::FillProximal(Minibatch& minibatch) {
  minibatch.proximal.resize(minibatch.runs.size());
  return state_->microbatches.ForEach(minibatch.runs.tokens, [&](size_t run) {
    const at::NoGradGuard no_grad;
    const std::vector<PackTree> trees = Select(minibatch.rows.trees, minibatch.runs.trees[run]);
    minibatch.proximal[run] = state_
                                  ->Forward(state_->PolicyWeights(), PackTrees(trees),
                                            state_->temperature(), Entropy::kNone)
                                  .logprobs_M;
    return absl::OkStatus();
  });
}

absl::Status PolicyLearner::TrainMinibatches(const std::vector<Minibatch>& minibatches,
                                             int64_t step, Sums& sums) {
  for (size_t m = 0; m < minibatches.size(); ++m) {
    const absl::Status status = TrainMinibatch(minibatches[m], step, sums);
    if (status.ok()) continue;
    if (m == 0) return status;
    // Another code than that of an unchanged model.
    return absl::AbortedError(
        StrCat("minibatch ", m + 1, " of ", minibatches.size(), ": ", Message(status)));
  }
  return absl::OkStatus();
}

absl::Status PolicyLearner::TrainMinibatch(const Minibatch& minibatch, int64_t step, Sums& sums) {
  state_->gradients.zero_();
  std::vector<RunLoss> losses(minibatch.runs.size());
  const auto run_loss = [&](size_t run) -> absl::StatusOr<at::Tensor> {
    FRESHET_ASSIGN_OR_RETURN(losses[run], ComputeRun(minibatch, run));
    return std::exchange(losses[run].output.loss, at::Tensor());
  };
  FRESHET_RETURN_IF_ERROR(state_->microbatches.AddGradients(minibatch.runs.tokens, run_loss));
  for (const RunLoss& loss : losses) sums.Add(loss);
  const absl::Time start = state_->clock.Now();
  FRESHET_ASSIGN_OR_RETURN(const StepReport report,
                           state_->Update(LearningRate(state_->options.schedule, step)));
  sums.optimizer_seconds += absl::ToDoubleSeconds(state_->clock.Now() - start);
  sums.grad_norm += report.grad_norm;
  return absl::OkStatus();
}

absl::StatusOr<PolicyLearner::RunLoss> PolicyLearner::ComputeRun(const Minibatch& minibatch,
                                                                 size_t run) const {
  const std::vector<PackTree> trees = Select(minibatch.rows.trees, minibatch.runs.trees[run]);
  TrainingRows::Columns columns;
  for (const size_t t : minibatch.runs.trees[run]) {
    const TrainingRows::Columns& part = minibatch.rows.columns[t];
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(columns.behavior_logprobs, part.behavior_logprobs);
    append(columns.loss_mask, part.loss_mask);
    append(columns.advantages, part.advantages);
    for (const int64_t sequence : part.sequence_index) {
      columns.sequence_index.push_back(columns.num_sequences + sequence);
    }
    columns.num_sequences += part.num_sequences;
  }
  const PackedBatch batch = PackTrees(trees);
  LossInputs inputs;
  if (state_->options.loss.NeedsReference() && state_->reference.defined()) {
    const at::NoGradGuard no_grad;
    inputs.ref_logprobs_N =
        state_->Forward(state_->ReferenceWeights(), batch, state_->temperature(), Entropy::kNone)
            .logprobs_M;
  }
  const TargetLogprobs out = state_->Forward(
      state_->PolicyWeights(), batch, state_->temperature(),
      state_->options.loss.NeedsEntropy() ? Entropy::kDifferentiable : Entropy::kValue);
  inputs.logprobs_N = out.logprobs_M;
  inputs.entropy_N = out.entropies_M;
  inputs.proximal_logprobs_N =
      minibatch.proximal.empty() ? out.logprobs_M.detach() : minibatch.proximal[run];
  inputs.behavior_logprobs_N = ToTensor(columns.behavior_logprobs);
  inputs.advantages_N = ToTensor(columns.advantages);
  inputs.loss_mask_N = ToTensor(columns.loss_mask);
  inputs.sequence_index_N = ToTensor(columns.sequence_index);
  inputs.num_sequences = columns.num_sequences;
  absl::StatusOr<LossOutput> loss = PolicyLoss(state_->options.loss, inputs, minibatch.normalizer);
  // A non-finite value here comes from the model: the step fails and the weights are unchanged.
  if (!loss.ok()) return FailedPrecondition(Message(loss.status()));
  return RunLoss{*std::move(loss), TrainingFlops(state_->options.model, trees)};
}

}  // namespace freshet
