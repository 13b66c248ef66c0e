#include "trainer/learner/step_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "trainer/learner/duplicates.h"
#include "trainer/learner/learning_rate.h"
#include "trainer/learner/model_flops.h"

namespace freshet {
namespace {

TrainStepResult StepResult(StepPlan plan, const StepSums& sums,
                           const LearningRateSchedule& schedule) {
  const auto parts = static_cast<double>(plan.minibatches.size());
  const auto tokens = static_cast<double>(std::max<int64_t>(sums.tokens, 1));
  TrainStepResult result;
  result.loss = sums.loss / parts;
  result.grad_norm = sums.grad_norm / parts;
  result.learning_rate = LearningRate(schedule, plan.step);
  result.entropy = sums.entropy / tokens;
  result.kl_behavior = sums.kl_behavior / tokens;
  result.kl_ref = sums.kl_ref / tokens;
  result.ratio_clip_fraction = static_cast<double>(sums.clipped) / tokens;
  result.importance_weight_mean = sums.weight / tokens;
  result.logprob_diff = sums.logprob_diff / tokens;
  result.importance_ratios = sums.ratios;
  result.tokens_trained = sums.tokens;
  result.model_flops = sums.model_flops;
  result.optimizer_seconds = sums.optimizer_seconds;
  result.checkpoint_seconds = sums.checkpoint_seconds;
  result.selection = plan.selection;
  result.duplicated_samples = plan.duplicated_samples;
  result.advantages = std::move(plan.advantages);
  return result;
}

}  // namespace

void StepSums::Add(const StepSums& other) {
  loss += other.loss;
  grad_norm += other.grad_norm;
  entropy += other.entropy;
  kl_behavior += other.kl_behavior;
  kl_ref += other.kl_ref;
  weight += other.weight;
  logprob_diff += other.logprob_diff;
  optimizer_seconds += other.optimizer_seconds;
  checkpoint_seconds += other.checkpoint_seconds;
  model_flops += other.model_flops;
  tokens += other.tokens;
  clipped += other.clipped;
  ratios.Add(other.ratios);
}

absl::StatusOr<StepPlan> PlanStep(const PolicyLearnerOptions& options, int64_t step,
                                  const std::vector<TrainGroup>& groups) {
  FRESHET_ASSIGN_OR_RETURN(TrainingRows all,
                           MakeTrainingRows(groups, options.loss.advantage, options.whole_responses,
                                            options.loss.credit, options.by_task));
  const size_t parts = std::min(static_cast<size_t>(options.minibatches_per_step), groups.size());
  StepPlan plan;
  plan.step = step;
  if (options.loss.duplicate) plan.duplicated_samples = AddDuplicates(groups, all);
  // With one minibatch the policy is its own proximal policy.
  plan.proximal = parts > 1 && options.loss.NeedsProximal();
  plan.minibatches.resize(parts);
  const auto minibatch_of = [&](size_t tree) -> Minibatch& {
    return plan.minibatches[all.groups[tree] * parts / groups.size()];
  };
  for (size_t t = 0; t < all.trees.size(); ++t) {
    LossNormalizer& normalizer = minibatch_of(t).normalizer;
    normalizer.total_tokens += all.columns[t].LossWeight();
    normalizer.total_sequences +=
        static_cast<double>(all.columns[t].SampledSequences() + all.columns[t].duplicates);
  }
  FRESHET_ASSIGN_OR_RETURN(plan.selection,
                           SelectLossTokens(options.loss, options.tokenizer.get(), all));
  for (size_t t = 0; t < all.trees.size(); ++t) {
    minibatch_of(t).rows.Add(std::move(all.trees[t]), std::move(all.columns[t]));
  }
  for (Minibatch& minibatch : plan.minibatches) {
    // Without a loss every numerator is 0.
    minibatch.normalizer.total_tokens = std::max(minibatch.normalizer.total_tokens, 1.0);
    minibatch.normalizer.total_sequences = std::max(minibatch.normalizer.total_sequences, 1.0);
    minibatch.normalizer.max_tokens = static_cast<double>(options.max_new_tokens);
  }
  plan.advantages = std::move(all.advantages);
  return plan;
}

absl::StatusOr<TrainStepResult> RunStep(
    const PolicyLearnerOptions& options, int64_t step, const std::vector<TrainGroup>& groups,
    absl::FunctionRef<absl::Status(Minibatch&)> compute_proximal,
    absl::FunctionRef<absl::StatusOr<StepSums>(const Minibatch&)> update) {
  FRESHET_ASSIGN_OR_RETURN(StepPlan plan, PlanStep(options, step, groups));
  if (plan.proximal) {
    for (Minibatch& minibatch : plan.minibatches) {
      FRESHET_RETURN_IF_ERROR(compute_proximal(minibatch));
    }
  }
  StepSums sums;
  for (size_t m = 0; m < plan.minibatches.size(); ++m) {
    const absl::StatusOr<StepSums> part = update(plan.minibatches[m]);
    if (part.ok()) {
      sums.Add(*part);
    } else if (m == 0) {
      return part.status();
    } else {
      // Another code than that of an unchanged model.
      return absl::AbortedError(StrCat("minibatch ", m + 1, " of ", plan.minibatches.size(), ": ",
                                       Message(part.status())));
    }
  }
  return StepResult(std::move(plan), sums, options.schedule);
}

void AssignProximal(const std::vector<size_t>& trees, std::span<const float> logprobs,
                    TrainingRows& rows) {
  size_t begin = 0;
  for (const size_t tree : trees) {
    TrainingRows::Columns& columns = rows.columns[tree];
    const auto part = logprobs.subspan(begin, columns.loss_mask.size());
    columns.proximal_logprobs.assign(part.begin(), part.end());
    begin += part.size();
  }
}

std::vector<size_t> BalanceTrees(const std::vector<double>& costs, size_t ranks) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return costs[a] > costs[b]; });
  std::vector<double> loads(ranks);
  std::vector<size_t> rank_of(costs.size());
  for (const size_t tree : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += costs[tree];
    rank_of[tree] = static_cast<size_t>(least - loads.begin());
  }
  return rank_of;
}

std::vector<RankShare> DivideMinibatch(const ModelConfig& model, const Minibatch& minibatch,
                                       size_t ranks) {
  const TrainingRows& rows = minibatch.rows;
  std::vector<double> costs;
  for (const PackTree& tree : rows.trees) costs.push_back(TrainingFlops(model, {tree}));
  const std::vector<size_t> rank_of = BalanceTrees(costs, ranks);
  std::vector<RankShare> shares(ranks);
  for (size_t t = 0; t < rank_of.size(); ++t) {
    RankShare& share = shares[rank_of[t]];
    share.minibatch.rows.Add(rows.trees[t], rows.columns[t]);
    share.trees.push_back(t);
  }
  for (RankShare& share : shares) share.minibatch.normalizer = minibatch.normalizer;
  return shares;
}

}  // namespace freshet
