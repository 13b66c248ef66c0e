#include "trainer/learner/policy_learner.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/device.h"
#include "model/packed_forward.h"
#include "model/tensor_convert.h"
#include "trainer/learner/learner_memory.h"
#include "trainer/learner/learner_snapshot.h"
#include "trainer/learner/memory_uses.h"
#include "trainer/learner/optimizer.h"
#include "trainer/learner/policy_learner_state.h"
#include "trainer/learner/weight_entries.h"
#include "trainer/loss/loss.h"

namespace freshet {

std::vector<at::Tensor> Leaves(const TransformerWeights& weights) {
  std::vector<at::Tensor> leaves;
  TransformerWeights copy = weights;  // of the tensors' handles
  ForEachTensor(copy,
                [&](const std::string&, const at::Tensor& tensor) { leaves.push_back(tensor); });
  return leaves;
}

std::vector<Parameter> Parameters(const ParameterLayout& layout) {
  std::vector<Parameter> parameters;
  TransformerWeights shapes = ViewWeights(
      layout, at::empty({layout.num_elements}, at::TensorOptions(at::kMeta).dtype(at::kFloat)));
  ForEachTensor(shapes, [&](const std::string& name, const at::Tensor& tensor) {
    parameters.push_back(
        {{name, tensor.storage_offset(), tensor.numel(), tensor.dim() >= 2}, tensor.sizes().vec()});
  });
  return parameters;
}

PolicyLearner::PolicyLearner(std::unique_ptr<State> state) : state_(std::move(state)) {}
PolicyLearner::~PolicyLearner() = default;

absl::StatusOr<std::unique_ptr<PolicyLearner>> PolicyLearner::Create(PolicyLearnerOptions options,
                                                                     const Clock& clock) {
  FRESHET_RETURN_IF_ERROR(options.model.Validate());
  FRESHET_RETURN_IF_ERROR(ValidateSchedule(options.schedule));
  if (options.minibatches_per_step < 1 || options.max_tokens_per_microbatch < 1 ||
      options.threads < 1) {
    return InvalidArgument(
        "minibatches_per_step, max_tokens_per_microbatch and threads must be at least 1");
  }
  try {
    FRESHET_ASSIGN_OR_RETURN(const at::Device device, OpenDevice(options.device));
    if (!device.is_cpu()) {
      at::globalContext().setDeterministicAlgorithms(options.deterministic, /*warn_only=*/false);
      at::globalContext().setDeterministicFillUninitializedMemory(false);
    }
    std::unique_ptr<PolicyLearner> learner(
        new PolicyLearner(std::make_unique<State>(std::move(options), device, clock)));
    FRESHET_RETURN_IF_ERROR(learner->state_->CheckOptimizer());
    return learner;
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

void PolicyLearner::InitializeRandom(uint64_t seed) {
  const at::NoGradGuard no_grad;
  State& state = *state_;
  state.files = nullptr;
  const auto hold = [&] {
    at::Tensor masters = at::zeros({state.layout.num_elements}, at::kFloat);
    InitializeWeights(state.layout, state.options.model.initializer_range, seed, masters);
    return state.HoldWhole({masters.to(state.device), std::move(state.reference), {}});
  };
  const absl::Status held =
      WithMemoryFor([&] { return UseOf("weights", state.options, state.device); }, hold);
  FRESHET_CHECK(held.ok());  // Create has checked the options
}

absl::Status PolicyLearner::LoadModel(std::shared_ptr<const ModelFiles> files) try {
  FRESHET_ASSIGN_OR_RETURN(state_->files, StateFiles::OfModel(std::move(files), state_->layout));
  return state_->LoadUndivided();
} catch (const std::exception& error) {
  return TorchError(error);
}

absl::Status PolicyLearner::LoadCheckpoint(const std::string& directory,
                                           int64_t optimizer_steps) try {
  FRESHET_ASSIGN_OR_RETURN(auto files, StateFiles::OfMasters(directory, state_->layout));
  FRESHET_RETURN_IF_ERROR(files->AddMoments(directory, optimizer_steps, state_->parameters));
  state_->files = std::move(files);
  return state_->LoadUndivided();
} catch (const std::exception& error) {
  return TorchError(error);
}

void PolicyLearner::FreezeReference() {
  if (state_->files != nullptr) {
    state_->reference_files = state_->files;
  } else {
    state_->reference =
        WithMemoryFor([this] { return ReferenceOf(state_->options, state_->device); },
                      [this] { return state_->weights.clone(); });
  }
}

absl::Status PolicyLearner::LoadReference(const std::string& directory) try {
  FRESHET_ASSIGN_OR_RETURN(auto files, StateFiles::OfMasters(directory, state_->layout));
  if (state_->files != nullptr) {
    state_->reference_files = std::move(files);
    return absl::OkStatus();
  }
  return WithMemoryFor([this] { return ReferenceOf(state_->options, state_->device); },
                       [&]() -> absl::Status {
                         FRESHET_ASSIGN_OR_RETURN(const at::Tensor host,
                                                  state_->ReadWeights(*files));
                         state_->reference = host.to(state_->device);
                         return absl::OkStatus();
                       });
} catch (const std::exception& error) {
  return TorchError(error);
}

absl::StatusOr<double> PolicyLearner::SftStep(const std::vector<SftExample>& examples,
                                              double learning_rate) {
  try {
    FRESHET_RETURN_IF_ERROR(state_->LoadFiles());
    std::vector<PackTree> trees;
    int64_t total = 0;
    for (const SftExample& example : examples) {
      trees.push_back({example.prompt, {example.answer}});
      total += static_cast<int64_t>(example.answer.size());
    }
    state_->ZeroGradients();
    const Runs runs = state_->Split(trees);
    std::vector<double> nll(runs.size());
    const auto run_loss = [&](size_t run, bool may_add) -> absl::StatusOr<at::Tensor> {
      const TargetLogprobs out = state_->ForwardPolicy(PackTrees(Select(trees, runs.trees[run])),
                                                       1.0, Entropy::kNone, may_add);
      FRESHET_ASSIGN_OR_RETURN(
          SftOutput loss,
          SftLoss(out.logprobs_M, at::ones_like(out.logprobs_M), static_cast<double>(total)));
      nll[run] = loss.nll_sum;
      return std::move(loss.loss);
    };
    FRESHET_RETURN_IF_ERROR(state_->microbatches->AddGradients(runs.tokens, run_loss));
    state_->AddHeadGradients();
    FRESHET_RETURN_IF_ERROR(state_->Update(learning_rate).status());
    return std::accumulate(nll.begin(), nll.end(), 0.0) / static_cast<double>(total);
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

void PolicyLearner::BeginPolicyTraining() {
  if (state_->files != nullptr) return;
  const absl::Status status = state_->ResetOptimizer(/*rank=*/0);
  FRESHET_CHECK(status.ok());  // Create validated the same options
}

absl::StatusOr<std::vector<std::vector<float>>> PolicyLearner::Score(
    const std::vector<std::vector<int32_t>>& sequences) {
  try {
    FRESHET_RETURN_IF_ERROR(state_->LoadFiles());
    const at::NoGradGuard no_grad;
    std::vector<std::vector<float>> scores;
    for (const std::vector<int32_t>& sequence : sequences) {
      if (sequence.size() < 2) {
        scores.emplace_back();
        continue;
      }
      const TargetLogprobs out = state_->Forward(state_->PolicyWeights(),
                                                 PackTrees({{sequence, {}}}), 1.0, Entropy::kNone);
      scores.push_back(ToFloats(out.logprobs_M));
    }
    return scores;
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

absl::StatusOr<std::string_view> PolicyLearner::Arena() const try {
  at::Tensor host = state_->weights;
  if (state_->files != nullptr) {
    FRESHET_ASSIGN_OR_RETURN(host, state_->ReadWeights(*state_->files));
    state_->published = host;
  } else if (state_->divides_weights()) {
    if (!state_->published.defined()) {
      state_->published =
          at::empty({state_->layout.num_elements},
                    at::TensorOptions(at::kCPU).dtype(state_->type()).pinned_memory(on_gpu()));
    }
    host = state_->published;
    FRESHET_RETURN_IF_ERROR(state_->GatherParts(state_->part_weights(), host));
  } else if (!state_->device.is_cpu()) {
    at::Tensor& copy = state_->published;
    if (!copy.defined()) {
      copy = WithMemoryFor(
          [this] { return UseOf("weights in host memory", state_->options, state_->device); },
          [&] {
            return at::empty(host.sizes(), host.options().device(at::kCPU).pinned_memory(true));
          });
    }
    host = copy.copy_(host);
  }
  return std::string_view(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
} catch (const std::exception& error) {
  return TorchError(error);
}

absl::StatusOr<std::shared_ptr<const LearnerState>> PolicyLearner::Snapshot() const try {
  const at::NoGradGuard no_grad;
  SnapshotLayout of{state_->layout, state_->parameters};
  if (state_->files != nullptr) {
    of.optimizer_steps = state_->files->optimizer_steps();
    return SnapshotOf(of, state_->files);
  }
  if (state_->divided()) return SnapshotOfRanks();
  of.optimizer_steps = state_->optimizer->step();
  const SnapshotDecision decision = DecideSnapshot(
      state_->options, kSnapshotBytes * state_->layout.num_elements, state_->HostTokens());
  return SnapshotOf(of, WholeState(state_->layout, {state_->Columns(), state_->Lend(),
                                                    decision.copies ? "" : decision.reason}));
} catch (const std::exception& error) {
  return TorchError(error);
}

std::vector<WeightEntry> PolicyLearner::WeightEntries() const {
  return EntriesOf(state_->layout, state_->options.bf16 ? Dtype::kBf16 : Dtype::kF32);
}

int64_t PolicyLearner::num_parameters() const { return state_->layout.num_parameters; }

const PolicyLearnerOptions& PolicyLearner::options() const { return state_->options; }

bool PolicyLearner::on_gpu() const { return !state_->device.is_cpu(); }

int PolicyLearner::threads() const {
  return state_->Threads(/*divides_weights=*/state_->options.sharding == Sharding::kFull);
}

}  // namespace freshet
