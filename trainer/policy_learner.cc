#include "trainer/policy_learner.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "model/model_weights.h"
#include "model/packed_forward.h"
#include "model/safetensors.h"
#include "model/tensor_convert.h"
#include "services/base/log.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"
#include "trainer/loss.h"
#include "trainer/optimizer.h"
#include "trainer/training_rows.h"

namespace freshet {
namespace {

absl::Status TorchError(const std::exception& error) {
  return Internal("training failed: ", std::string(error.what()).substr(0, 300));
}

// The tensors of `weights` that are optimised, in a fixed order; a tied head appears once.
std::vector<TrainedParameter> Leaves(const TransformerWeights& weights) {
  std::vector<TrainedParameter> leaves;
  leaves.push_back({"embed", weights.embed_VH, std::nullopt});
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const TransformerWeights::Layer& layer = weights.layers[i];
    const std::string prefix = StrCat("layers.", i, ".");
    leaves.push_back({prefix + "input_norm", layer.input_norm_H, std::nullopt});
    leaves.push_back({prefix + "qkv", layer.qkv, std::nullopt});
    leaves.push_back({prefix + "o", layer.o, std::nullopt});
    leaves.push_back({prefix + "post_norm", layer.post_norm_H, std::nullopt});
    leaves.push_back({prefix + "gate_up", layer.gate_up, std::nullopt});
    leaves.push_back({prefix + "down", layer.down, std::nullopt});
  }
  leaves.push_back({"norm", weights.norm_H, std::nullopt});
  if (!weights.lm_head_VH.is_same(weights.embed_VH)) {
    leaves.push_back({"lm_head", weights.lm_head_VH, std::nullopt});
  }
  return leaves;
}

TensorCopy CopyTensor(std::string name, const at::Tensor& tensor, std::vector<int64_t> shape) {
  TensorCopy copy{std::move(name), Dtype::kF32, std::move(shape), {}};
  const at::Tensor flat = tensor.detach().contiguous();
  const auto* data = static_cast<const std::byte*>(flat.const_data_ptr());
  copy.bytes.assign(data, data + flat.nbytes());
  return copy;
}

}  // namespace

struct PolicyLearner::State {
  State(PolicyLearnerOptions given, const Clock& given_clock)
      : options(std::move(given)),
        clock(given_clock),
        layout(MakeParameterLayout(options.model)),
        model(options.model),
        flat(at::zeros({layout.num_elements}, at::kFloat)),
        weights(ViewWeights(layout, flat)) {
    for (TrainedParameter& leaf : Leaves(weights)) leaf.value.set_requires_grad(true);
  }

  PolicyLearnerOptions options;
  const Clock& clock;
  ParameterLayout layout;
  Transformer model;
  at::Tensor flat;
  TransformerWeights weights;  // leaves that view `flat`
  std::optional<AdamW> optimizer;
  std::optional<at::Tensor> reference;  // flat arena of the frozen policy

  double temperature() const { return options.temperature > 0 ? options.temperature : 1.0; }
  at::ScalarType dtype() const { return options.bf16 ? at::kBFloat16 : at::kFloat; }

  TargetLogprobs Forward(const TransformerWeights& with, const PackedBatch& batch, double temp,
                         Entropy entropy) const {
    return PackedForward(model, CastWeights(with, dtype()), batch, temp, entropy);
  }
};

// One optimizer step's share of a batch, cut into runs of trees that fit a microbatch.
struct PolicyLearner::Minibatch {
  TrainingRows rows;
  std::vector<std::pair<size_t, size_t>> runs;
  std::vector<at::Tensor> proximal;  // per run; empty: the current policy is the proximal one
  LossNormalizer normalizer;
};

struct PolicyLearner::Sums {
  double loss = 0, grad_norm = 0, entropy = 0, kl_behavior = 0, kl_ref = 0, weight = 0;
  double optimizer_seconds = 0;
  int64_t tokens = 0, clipped = 0;
};

PolicyLearner::PolicyLearner(std::unique_ptr<State> state) : state_(std::move(state)) {}
PolicyLearner::~PolicyLearner() = default;

absl::StatusOr<std::unique_ptr<PolicyLearner>> PolicyLearner::Create(PolicyLearnerOptions options,
                                                                     const Clock& clock) {
  FRESHET_RETURN_IF_ERROR(options.model.Validate());
  FRESHET_RETURN_IF_ERROR(ValidateSchedule(options.schedule));
  if (options.minibatches_per_step < 1 || options.max_tokens_per_microbatch < 1) {
    return InvalidArgument("minibatches_per_step and max_tokens_per_microbatch must be at least 1");
  }
  try {
    std::unique_ptr<PolicyLearner> learner(
        new PolicyLearner(std::make_unique<State>(std::move(options), clock)));
    FRESHET_RETURN_IF_ERROR(learner->ResetOptimizer());
    return learner;
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

absl::Status PolicyLearner::ResetOptimizer() {
  const PolicyLearnerOptions& o = state_->options;
  FRESHET_ASSIGN_OR_RETURN(
      AdamW optimizer, AdamW::Create(Leaves(state_->weights), {o.beta1, o.beta2, o.epsilon,
                                                               o.weight_decay, o.grad_clip_norm}));
  state_->optimizer.emplace(std::move(optimizer));
  return absl::OkStatus();
}

void PolicyLearner::InitializeRandom(uint64_t seed) {
  const at::NoGradGuard no_grad;
  InitializeWeights(state_->layout, state_->options.model.initializer_range, seed, state_->flat);
}

absl::Status PolicyLearner::LoadModel(const ModelFiles& files) {
  const at::NoGradGuard no_grad;
  return FillArena(files, state_->layout, state_->flat);
}

void PolicyLearner::FreezeReference() { state_->reference = state_->flat.detach().clone(); }

absl::Status PolicyLearner::LoadReference(const ModelFiles& files) {
  at::Tensor reference = at::zeros_like(state_->flat);
  FRESHET_RETURN_IF_ERROR(FillArena(files, state_->layout, reference));
  state_->reference = std::move(reference);
  return absl::OkStatus();
}

absl::Status PolicyLearner::LoadOptimizer(const std::string& checkpoint_dir,
                                          int64_t optimizer_steps) {
  const std::string path = checkpoint_dir + "/optimizer.safetensors";
  FRESHET_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path));
  AdamWState state;
  state.step = optimizer_steps;
  const auto read = [&](const std::string& name, const at::Tensor& like, at::Tensor& out) {
    const TensorInfo* info = file->Find(name);
    if (info == nullptr || info->dtype != Dtype::kF32 || info->shape != like.sizes().vec()) {
      return DataLoss(path, ": tensor ", name, " is missing or misshapen");
    }
    out = at::empty_like(like, like.options().requires_grad(false));
    std::memcpy(out.mutable_data_ptr<float>(), file->Data(*info).data(), info->bytes);
    return absl::OkStatus();
  };
  for (const TrainedParameter& leaf : Leaves(state_->weights)) {
    AdamWMoments& moments = state.moments[leaf.name];
    FRESHET_RETURN_IF_ERROR(read("exp_avg." + leaf.name, leaf.value, moments.exp_avg));
    FRESHET_RETURN_IF_ERROR(read("exp_avg_sq." + leaf.name, leaf.value, moments.exp_avg_sq));
  }
  return state_->optimizer->SetState(state);
}

absl::StatusOr<double> PolicyLearner::SftStep(const std::vector<SftExample>& examples,
                                              double learning_rate) {
  try {
    std::vector<PackTree> trees;
    int64_t total = 0;
    for (const SftExample& example : examples) {
      trees.push_back({example.prompt, {example.answer}});
      total += static_cast<int64_t>(example.answer.size());
    }
    state_->optimizer->ZeroGrad();
    double nll = 0;
    for (const auto& [begin, end] :
         SplitByTokens(trees, state_->options.max_tokens_per_microbatch)) {
      const std::vector<PackTree> run(trees.begin() + static_cast<ptrdiff_t>(begin),
                                      trees.begin() + static_cast<ptrdiff_t>(end));
      const TargetLogprobs out =
          state_->Forward(state_->weights, PackTrees(run), 1.0, Entropy::kNone);
      FRESHET_ASSIGN_OR_RETURN(
          const SftOutput loss,
          SftLoss(out.logprobs_M, at::ones_like(out.logprobs_M), static_cast<double>(total)));
      loss.loss.backward();
      nll += loss.nll_sum;
    }
    FRESHET_RETURN_IF_ERROR(state_->optimizer->Step(learning_rate).status());
    return nll / static_cast<double>(total);
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

void PolicyLearner::BeginPolicyTraining() {
  const absl::Status status = ResetOptimizer();
  FRESHET_CHECK(status.ok());  // the same options were accepted before
}

absl::StatusOr<std::vector<std::vector<float>>> PolicyLearner::Score(
    const std::vector<std::vector<int32_t>>& sequences) {
  try {
    const at::NoGradGuard no_grad;
    std::vector<std::vector<float>> scores;
    for (const std::vector<int32_t>& sequence : sequences) {
      if (sequence.size() < 2) {
        scores.emplace_back();
        continue;
      }
      const TargetLogprobs out =
          state_->Forward(state_->weights, PackTrees({{sequence, {}}}), 1.0, Entropy::kNone);
      scores.push_back(ToFloats(out.logprobs_M));
    }
    return scores;
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

absl::StatusOr<TrainStepResult> PolicyLearner::TrainStep(int64_t step,
                                                         const std::vector<TrainGroup>& groups) {
  const PolicyLearnerOptions& options = state_->options;
  FRESHET_ASSIGN_OR_RETURN(TrainingRows all, MakeTrainingRows(groups, options.loss.advantage));
  const size_t parts = std::min(static_cast<size_t>(options.minibatches_per_step), groups.size());
  std::vector<Minibatch> minibatches(parts);
  for (size_t g = 0; g < groups.size(); ++g) {
    TrainingRows& rows = minibatches[g * parts / groups.size()].rows;
    rows.trees.push_back(std::move(all.trees[g]));
    for (const float mask : all.columns[g].loss_mask) rows.loss_tokens += mask > 0 ? 1 : 0;
    rows.num_sequences += all.columns[g].num_sequences;
    rows.columns.push_back(std::move(all.columns[g]));
  }
  try {
    for (Minibatch& minibatch : minibatches) {
      minibatch.runs = SplitByTokens(minibatch.rows.trees, options.max_tokens_per_microbatch);
      minibatch.normalizer = {static_cast<double>(minibatch.rows.loss_tokens),
                              static_cast<double>(minibatch.rows.num_sequences),
                              static_cast<double>(options.max_new_tokens)};
      // With one minibatch the policy does not move between: it is its own proximal policy.
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
    result.tokens_trained = sums.tokens;
    result.optimizer_seconds = sums.optimizer_seconds;
    return result;
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

absl::Status PolicyLearner::FillProximal(Minibatch& minibatch) {
  const at::NoGradGuard no_grad;
  for (const auto& [begin, end] : minibatch.runs) {
    const std::vector<PackTree> trees(minibatch.rows.trees.begin() + static_cast<ptrdiff_t>(begin),
                                      minibatch.rows.trees.begin() + static_cast<ptrdiff_t>(end));
    minibatch.proximal.push_back(
        state_->Forward(state_->weights, PackTrees(trees), state_->temperature(), Entropy::kNone)
            .logprobs_M);
  }
  return absl::OkStatus();
}

// All updates of a step or none: when a later minibatch fails, the earlier ones are undone.
absl::Status PolicyLearner::TrainMinibatches(const std::vector<Minibatch>& minibatches,
                                             int64_t step, Sums& sums) {
  if (minibatches.size() == 1) return TrainMinibatch(minibatches.front(), step, sums);
  const at::Tensor weights = state_->flat.detach().clone();
  AdamWState optimizer = state_->optimizer->GetState();
  for (auto& [name, moments] : optimizer.moments) {
    moments = {moments.exp_avg.detach().clone(), moments.exp_avg_sq.detach().clone()};
  }
  absl::Status status;
  try {
    for (size_t m = 0; m < minibatches.size() && status.ok(); ++m) {
      status = TrainMinibatch(minibatches[m], step, sums);
    }
  } catch (const std::exception& error) {
    status = TorchError(error);
  }
  if (!status.ok()) {
    std::memcpy(state_->flat.mutable_data_ptr(), weights.const_data_ptr(), weights.nbytes());
    FRESHET_RETURN_IF_ERROR(state_->optimizer->SetState(optimizer));
  }
  return status;
}

absl::Status PolicyLearner::TrainMinibatch(const Minibatch& minibatch, int64_t step, Sums& sums) {
  state_->optimizer->ZeroGrad();
  for (size_t run = 0; run < minibatch.runs.size(); ++run) {
    FRESHET_RETURN_IF_ERROR(AccumulateRun(minibatch, run, sums));
  }
  const absl::Time start = state_->clock.Now();
  FRESHET_ASSIGN_OR_RETURN(const StepReport report,
                           state_->optimizer->Step(LearningRate(state_->options.schedule, step)));
  sums.optimizer_seconds += absl::ToDoubleSeconds(state_->clock.Now() - start);
  sums.grad_norm += report.grad_norm;
  return absl::OkStatus();
}

absl::Status PolicyLearner::AccumulateRun(const Minibatch& minibatch, size_t run, Sums& sums) {
  const auto& [begin, end] = minibatch.runs[run];
  std::vector<PackTree> trees;
  TrainingRows::Columns columns;
  for (size_t t = begin; t < end; ++t) {
    trees.push_back(minibatch.rows.trees[t]);
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
  if (state_->options.loss.NeedsReference() && state_->reference.has_value()) {
    const at::NoGradGuard no_grad;
    inputs.ref_logprobs_N = state_
                                ->Forward(ViewWeights(state_->layout, *state_->reference), batch,
                                          state_->temperature(), Entropy::kNone)
                                .logprobs_M;
  }
  const TargetLogprobs out = state_->Forward(
      state_->weights, batch, state_->temperature(),
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
  const absl::StatusOr<LossOutput> loss =
      PolicyLoss(state_->options.loss, inputs, minibatch.normalizer);
  // What is not finite here was made by the model: the step fails, the weights stay as they were.
  if (!loss.ok()) return FailedPrecondition(Message(loss.status()));
  loss->loss.backward();
  sums.loss += loss->loss_value;
  sums.entropy += loss->entropy_sum;
  sums.kl_behavior += loss->kl_behavior_sum;
  sums.kl_ref += loss->kl_ref_sum;
  sums.weight += loss->correction_weight_sum;
  sums.tokens += loss->tokens;
  sums.clipped += loss->clipped_tokens;
  return absl::OkStatus();
}

std::string_view PolicyLearner::Arena() const {
  return {static_cast<const char*>(state_->flat.const_data_ptr()), state_->flat.nbytes()};
}

absl::StatusOr<std::shared_ptr<const LearnerState>> PolicyLearner::Snapshot() const {
  try {
    const at::NoGradGuard no_grad;
    auto snapshot = std::make_shared<LearnerState>();
    for (const ParameterEntry& entry : state_->layout.entries) {
      snapshot->model.push_back(
          CopyTensor(entry.name, state_->flat.narrow(0, entry.offset, entry.size), entry.shape));
    }
    const AdamWState optimizer = state_->optimizer->GetState();
    for (const auto& [name, moments] : optimizer.moments) {
      const std::vector<int64_t> shape = moments.exp_avg.sizes().vec();
      snapshot->optimizer.push_back(CopyTensor("exp_avg." + name, moments.exp_avg, shape));
      snapshot->optimizer.push_back(CopyTensor("exp_avg_sq." + name, moments.exp_avg_sq, shape));
    }
    snapshot->optimizer_steps = optimizer.step;
    return std::shared_ptr<const LearnerState>(std::move(snapshot));
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

std::vector<WeightEntry> PolicyLearner::WeightEntries() const {
  std::vector<WeightEntry> entries;
  for (const ParameterEntry& entry : state_->layout.entries) {
    entries.push_back(
        {entry.name, "F32", entry.shape, entry.offset * static_cast<int64_t>(sizeof(float))});
  }
  return entries;
}

int64_t PolicyLearner::num_parameters() const { return state_->layout.num_parameters; }

}  // namespace freshet
