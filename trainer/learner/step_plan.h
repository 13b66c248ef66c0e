#ifndef FRESHET_TRAINER_LEARNER_STEP_PLAN_H_
#define FRESHET_TRAINER_LEARNER_STEP_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datastore/trajectory_store.h"
#include "trainer/learner/loss_selection.h"
#include "trainer/learner/policy_learner.h"
#include "trainer/learner/training_rows.h"
#include "trainer/loss/importance_ratio.h"
#include "trainer/loss/loss.h"

namespace freshet {

// Rows of one optimizer step: all of them, or a rank's share.
struct Minibatch {
  TrainingRows rows;
  // Of the whole minibatch, also in a share, with the tokens that SelectLossTokens masks and with
  // duplicates.
  LossNormalizer normalizer;
};

// A training step as optimizer steps.
struct StepPlan {
  int64_t step = 0;
  // Whether the proximal policy is the one before the first update. Otherwise the current policy
  // is.
  bool proximal = false;
  std::vector<Minibatch> minibatches;
  LossSelection selection;
  int64_t duplicated_samples = 0;
  // For every sample, in the shape of the groups.
  std::vector<std::vector<double>> advantages;
};

// Sums over the loss-bearing tokens of minibatches, and over minibatches where noted.
struct StepSums {
  double loss = 0;       // over minibatches
  double grad_norm = 0;  // over minibatches
  double entropy = 0, kl_behavior = 0, kl_ref = 0, weight = 0, logprob_diff = 0;
  double optimizer_seconds = 0, checkpoint_seconds = 0, model_flops = 0;  // over minibatches
  int64_t tokens = 0, clipped = 0;
  ImportanceRatios ratios;

  void Add(const StepSums& other);
};

// How long the other ranks may take to compute their shares. Dead ranks are noticed sooner, by
// whoever watches them.
constexpr absl::Duration kShareTimeout = absl::Minutes(30);

// Learner::TrainStep: proximal log-probs where they are needed, then the updates.
absl::StatusOr<TrainStepResult> RunStep(
    const PolicyLearnerOptions& options, int64_t step, const std::vector<TrainGroup>& groups,
    absl::FunctionRef<absl::Status(Minibatch&)> compute_proximal,
    absl::FunctionRef<absl::StatusOr<StepSums>(const Minibatch&)> update);

// The rest is pure.

// Errors of MakeTrainingRows and SelectLossTokens.
absl::StatusOr<StepPlan> PlanStep(const PolicyLearnerOptions& options, int64_t step,
                                  const std::vector<TrainGroup>& groups);

// Sets the columns' proximal log-probs of `trees`, in this order, from the beginning of `logprobs`.
void AssignProximal(const std::vector<size_t>& trees, std::span<const float> logprobs,
                    TrainingRows& rows);

// The rank of each tree: the costliest tree first, each to the rank that has least (LPT; Graham
// 1969, "Bounds on Multiprocessing Timing Anomalies").
std::vector<size_t> BalanceTrees(const std::vector<double>& costs, size_t ranks);

struct RankShare {
  Minibatch minibatch;
  std::vector<size_t> trees;  // their places in the whole minibatch
};
// Shares of about equal work. A rank may get nothing.
std::vector<RankShare> DivideMinibatch(const ModelConfig& model, const Minibatch& minibatch,
                                       size_t ranks);

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_STEP_PLAN_H_
