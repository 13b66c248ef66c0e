#ifndef FRESHET_TRAINER_LEARNER_POLICY_LEARNER_STATE_H_
#define FRESHET_TRAINER_LEARNER_POLICY_LEARNER_STATE_H_

#include <optional>
#include <utility>
#include <vector>

#include "model/packed_forward.h"
#include "model/transformer.h"
#include "trainer/learner/microbatches.h"
#include "trainer/learner/optimizer.h"
#include "trainer/learner/policy_learner.h"
#include "trainer/learner/training_rows.h"
#include "trainer/loss/loss.h"

// Internal to PolicyLearner's source files.

namespace freshet {

// The tensors of `weights` to optimize, in a fixed order; a tied head appears once.
std::vector<TrainedParameter> TrainedParameters(const TransformerWeights& weights);

// Microbatches of a batch.
struct Runs {
  std::vector<std::pair<size_t, size_t>> ranges;  // of trees
  std::vector<int64_t> tokens;
};

struct PolicyLearner::State {
  State(PolicyLearnerOptions given, const Clock& given_clock)
      : options(std::move(given)),
        clock(given_clock),
        layout(MakeParameterLayout(options.model)),
        model(options.model),
        flat(at::zeros({layout.num_elements}, at::kFloat)),
        weights(ViewWeights(layout, flat)),
        microbatches(MicrobatchThreads(options.threads, layout.num_elements),
                     options.max_tokens_per_microbatch, TrainedParameters(weights)) {
    for (TrainedParameter& leaf : TrainedParameters(weights)) leaf.value.set_requires_grad(true);
  }

  PolicyLearnerOptions options;
  const Clock& clock;
  ParameterLayout layout;
  Transformer model;
  at::Tensor flat;
  TransformerWeights weights;  // leaves that are views of `flat`
  Microbatches microbatches;
  std::optional<AdamW> optimizer;
  std::optional<at::Tensor> reference;  // flat arena of the frozen policy
  at::Tensor rounded;                   // the last Arena() of a bf16 learner, until the next step

  double temperature() const { return options.temperature > 0 ? options.temperature : 1.0; }
  at::ScalarType dtype() const { return options.bf16 ? at::kBFloat16 : at::kFloat; }

  Runs Split(const std::vector<PackTree>& trees) const {
    Runs runs;
    runs.ranges = SplitByTokens(
        trees, MicrobatchTokens(trees, options.max_tokens_per_microbatch, layout.num_elements));
    for (const auto& [begin, end] : runs.ranges) {
      int64_t& tokens = runs.tokens.emplace_back();
      for (size_t tree = begin; tree < end; ++tree) tokens += PackedTokens(trees[tree]);
    }
    return runs;
  }

  TargetLogprobs Forward(const TransformerWeights& with, const PackedBatch& batch, double temp,
                         Entropy entropy) const {
    return PackedForward(model, CastWeights(with, dtype()), batch, temp, entropy);
  }
};

// One optimizer step's share of a batch, split into runs of trees that fit a microbatch.
struct PolicyLearner::Minibatch {
  TrainingRows rows;
  Runs runs;
  std::vector<at::Tensor> proximal;  // per run; empty: the current policy is the proximal one
  LossNormalizer normalizer;
};

struct PolicyLearner::RunLoss {
  LossOutput output;
  double model_flops = 0;
};

struct PolicyLearner::Sums {
  double loss = 0, grad_norm = 0, entropy = 0, kl_behavior = 0, kl_ref = 0, weight = 0;
  double optimizer_seconds = 0, logprob_diff = 0, model_flops = 0;
  int64_t tokens = 0, clipped = 0;
  ImportanceRatios ratios;

  void Add(const RunLoss& run) {
    loss += run.output.loss_value;
    entropy += run.output.entropy_sum;
    kl_behavior += run.output.kl_behavior_sum;
    kl_ref += run.output.kl_ref_sum;
    weight += run.output.correction_weight_sum;
    logprob_diff += run.output.logprob_diff_sum;
    model_flops += run.model_flops;
    tokens += run.output.tokens;
    clipped += run.output.clipped_tokens;
    ratios.Add(run.output.importance_ratios);
  }
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_POLICY_LEARNER_STATE_H_
