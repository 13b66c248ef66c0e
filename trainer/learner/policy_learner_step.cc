#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/tensor_convert.h"
#include "trainer/learner/block_exchange.h"
#include "trainer/learner/model_flops.h"
#include "trainer/learner/policy_learner.h"
#include "trainer/learner/policy_learner_state.h"
#include "trainer/learner/step_plan.h"

namespace freshet {

namespace {

void Append(std::vector<float>& to, const std::vector<float>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

StepSums SumsOf(const LossOutput& output, double model_flops) {
  StepSums sums;
  sums.loss = output.loss_value;
  sums.entropy = output.entropy_sum;
  sums.kl_behavior = output.kl_behavior_sum;
  sums.kl_ref = output.kl_ref_sum;
  sums.weight = output.correction_weight_sum;
  sums.logprob_diff = output.logprob_diff_sum;
  sums.model_flops = model_flops;
  sums.tokens = output.tokens;
  sums.clipped = output.clipped_tokens;
  sums.ratios = output.importance_ratios;
  return sums;
}

absl::StatusOr<TrainStepResult> PolicyLearner::TrainStep(int64_t step,
                                                         const std::vector<TrainGroup>& groups) {
  return RunStep(
      state_->options, step, groups,
      [&](Minibatch& minibatch) { return ComputeProximal(minibatch); },
      [&](const Minibatch& minibatch) { return Update(step, minibatch); });
}

absl::Status PolicyLearner::ComputeProximal(Minibatch& share) const {
  try {
    FRESHET_RETURN_IF_ERROR(state_->LoadFiles());
    state_->on_phase(RankPhase::kComputing);
    if (state_->divides_weights()) return ComputeProximalBlockwise(share);
    const Runs runs = state_->Split(share.rows.trees);
    return state_->microbatches->ForEach(runs.tokens, [&](size_t run) -> absl::Status {
      FRESHET_RETURN_IF_ERROR(state_->GroupError());
      const at::NoGradGuard no_grad;
      const std::vector<PackTree> trees = Select(share.rows.trees, runs.trees[run]);
      const std::vector<float> logprobs =
          ToFloats(state_
                       ->Forward(state_->PolicyWeights(), PackTrees(trees), state_->temperature(),
                                 Entropy::kNone)
                       .logprobs_M);
      AssignProximal(runs.trees[run], logprobs, share.rows);
      return absl::OkStatus();
    });
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

absl::StatusOr<StepSums> PolicyLearner::Update(int64_t step, const Minibatch& share) {
  try {
    FRESHET_RETURN_IF_ERROR(state_->LoadFiles());
    state_->on_phase(RankPhase::kComputing);
    absl::StatusOr<StepSums> sums =
        state_->divides_weights() ? AddGradientsBlockwise(share) : AddGradients(share);
    const bool lends = state_->Lends();
    bool any_lends = lends;
    if (state_->ranks != nullptr) {
      FRESHET_ASSIGN_OR_RETURN(const Agreement agreed, Agree(sums, lends));
      sums = agreed.sums;
      any_lends = agreed.any_lends;
      FRESHET_RETURN_IF_ERROR(SumGradients());
    }
    FRESHET_RETURN_IF_ERROR(sums.status());
    const absl::Time computed = state_->clock.Now();
    state_->AwaitLoans();
    // A rank that copies, or whose state stays lent, may wait for the whole write, and the update
    // needs all ranks. This wait is not bounded by kShareTimeout, as those of the update are.
    if (any_lends && state_->divided()) {
      state_->on_phase(RankPhase::kSaving);
      if (!lends) {
        FRESHET_LOG(Info) << "event=waiting reason="
                          << LogQuoted("another rank's part is being written to a checkpoint");
      }
      FRESHET_RETURN_IF_ERROR(state_->ranks->Barrier(kWritePatience));
    }
    const absl::Time start = state_->clock.Now();
    sums->checkpoint_seconds = absl::ToDoubleSeconds(start - computed);
    const double learning_rate = LearningRate(state_->options.schedule, step);
    StepReport report;
    if (state_->divided()) {
      const auto add = [this](const std::vector<double>& squares) { return AddSquares(squares); };
      FRESHET_ASSIGN_OR_RETURN(report, state_->Update(learning_rate, add));
      if (!state_->divides_weights()) {
        state_->on_phase(RankPhase::kGathering);
        FRESHET_RETURN_IF_ERROR(AllGatherBlocks(*state_->ranks, state_->shards,
                                                state_->part_weights(), state_->weights,
                                                kShareTimeout));
        state_->on_phase(RankPhase::kIdle);
      }
    } else {
      FRESHET_ASSIGN_OR_RETURN(report, state_->Update(learning_rate));
    }
    sums->optimizer_seconds = absl::ToDoubleSeconds(state_->clock.Now() - start);
    sums->grad_norm = report.grad_norm;
    return sums;
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

absl::StatusOr<StepSums> PolicyLearner::AddGradients(const Minibatch& share) try {
  state_->ZeroGradients();
  const Runs runs = state_->Split(share.rows.trees);
  state_->NoteBatch(runs);
  std::vector<StepSums> sums(runs.size());
  const auto run_loss = [&](size_t run, bool may_add) -> absl::StatusOr<at::Tensor> {
    FRESHET_RETURN_IF_ERROR(state_->GroupError());
    FRESHET_ASSIGN_OR_RETURN(
        State::RunLoss loss,
        state_->ComputeRun(state_->MakeRun(share, runs.trees[run]), share, may_add));
    sums[run] = SumsOf(loss.output, loss.model_flops);
    return std::move(loss.output.loss);
  };
  FRESHET_RETURN_IF_ERROR(state_->microbatches->AddGradients(runs.tokens, run_loss));
  state_->AddHeadGradients();
  StepSums total;
  for (const StepSums& part : sums) total.Add(part);
  return total;
} catch (const std::exception& error) {
  return TorchError(error);
}

PolicyLearner::Run PolicyLearner::State::MakeRun(const Minibatch& share,
                                                 const std::vector<size_t>& chosen) const {
  Run run;
  run.trees = Select(share.rows.trees, chosen);
  run.batch = PackTrees(run.trees);
  TrainingRows::Columns& columns = run.columns;
  for (const size_t t : chosen) {
    const TrainingRows::Columns& part = share.rows.columns[t];
    Append(columns.behavior_logprobs, part.behavior_logprobs);
    Append(columns.loss_mask, part.loss_mask);
    Append(columns.advantages, part.advantages);
    Append(columns.proximal_logprobs, part.proximal_logprobs);
    for (const int64_t sequence : part.sequence_index) {
      columns.sequence_index.push_back(columns.num_sequences + sequence);
    }
    columns.num_sequences += part.num_sequences;
  }
  return run;
}

absl::StatusOr<PolicyLearner::State::RunLoss> PolicyLearner::State::ComputeRun(
    const Run& run, const Minibatch& share, bool may_add) const {
  at::Tensor ref_logprobs;
  if (NeedsReference()) {
    const at::NoGradGuard no_grad;
    ref_logprobs = Forward(ReferenceWeights(), run.batch, temperature(), Entropy::kNone).logprobs_M;
  }
  const TargetLogprobs out = ForwardPolicy(run.batch, temperature(), LossEntropy(), may_add);
  return LossOf(run, share, out, ref_logprobs);
}

absl::StatusOr<PolicyLearner::State::RunLoss> PolicyLearner::State::LossOf(
    const Run& run, const Minibatch& share, const TargetLogprobs& out,
    const at::Tensor& ref_logprobs) const {
  const TrainingRows::Columns& columns = run.columns;
  LossInputs inputs;
  inputs.ref_logprobs_N = ref_logprobs;
  inputs.logprobs_N = out.logprobs_M;
  inputs.entropy_N = out.entropies_M;
  const auto on_device = [&](const auto& numbers) { return ToTensor(numbers).to(device); };
  inputs.proximal_logprobs_N = columns.proximal_logprobs.empty()
                                   ? out.logprobs_M.detach()
                                   : on_device(columns.proximal_logprobs);
  inputs.behavior_logprobs_N = on_device(columns.behavior_logprobs);
  inputs.advantages_N = on_device(columns.advantages);
  inputs.loss_mask_N = on_device(columns.loss_mask);
  inputs.sequence_index_N = on_device(columns.sequence_index);
  inputs.num_sequences = columns.num_sequences;
  absl::StatusOr<LossOutput> loss = PolicyLoss(options.loss, inputs, share.normalizer);
  // A non-finite value here comes from the model: the step fails and the weights are unchanged.
  if (!loss.ok()) return FailedPrecondition(Message(loss.status()));
  return RunLoss{*std::move(loss), TrainingFlops(options.model, run.trees)};
}

}  // namespace freshet
