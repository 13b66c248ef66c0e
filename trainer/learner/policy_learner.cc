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
#include "model/model_weights.h"
#include "model/packed_forward.h"
#include "model/safetensors.h"
#include "model/tensor_convert.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/learner/learner_memory.h"
#include "trainer/learner/memory_uses.h"
#include "trainer/learner/optimizer.h"
#include "trainer/learner/policy_learner_state.h"
#include "trainer/loss/loss.h"

namespace freshet {
namespace {

// A part of a flat fp32 arena.
StateTensor Part(std::string name, const at::Tensor& arena, int64_t begin,
                 std::vector<int64_t> shape, bool copies) {
  StateTensor tensor{std::move(name), Dtype::kF32, std::move(shape), {}, {}};
  size_t bytes = sizeof(float);
  for (const int64_t dim : tensor.shape) bytes *= static_cast<size_t>(dim);
  const auto* data = reinterpret_cast<const std::byte*>(arena.const_data_ptr<float>() + begin);
  if (copies) {
    tensor.copy.assign(data, data + bytes);
  } else {
    tensor.lent = {data, bytes};
  }
  return tensor;
}

// Reads a fp32 tensor of optimizer.safetensors.
absl::Status ReadFloats(const SafetensorsFile& file, const std::string& name,
                        const std::vector<int64_t>& shape, float* out) {
  const TensorInfo* info = file.Find(name);
  if (info == nullptr || info->dtype != Dtype::kF32 || info->shape != shape) {
    return DataLoss(file.path(), ": tensor ", name, " is missing or misshapen");
  }
  std::memcpy(out, file.Data(*info).data(), info->bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> OpenOptimizer(const std::string& checkpoint_dir) {
  return SafetensorsFile::Open(checkpoint_dir + "/optimizer.safetensors");
}

// Copies the fp32 master weights of a checkpoint to `flat`.
absl::Status FillMasters(const std::string& checkpoint_dir, const ParameterLayout& layout,
                         const at::Tensor& flat) {
  FRESHET_ASSIGN_OR_RETURN(const auto files, ModelFiles::Open(checkpoint_dir));
  const bool rounded =
      std::any_of(layout.entries.begin(), layout.entries.end(), [&](const ParameterEntry& entry) {
        const StoredTensor* stored = files->Find(entry.name);
        return stored != nullptr && stored->dtype != Dtype::kF32;
      });
  if (!rounded) return FillArena(*files, layout, flat);
  FRESHET_ASSIGN_OR_RETURN(const auto optimizer, OpenOptimizer(checkpoint_dir));
  float* arena = flat.mutable_data_ptr<float>();
  for (const ParameterEntry& entry : layout.entries) {
    FRESHET_RETURN_IF_ERROR(
        ReadFloats(*optimizer, kMasterPrefix + entry.name, entry.shape, arena + entry.offset));
  }
  return absl::OkStatus();
}

}  // namespace

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
    if (!learner->options().state_from_rank_zero) {
      State& state = *learner->state_;
      FRESHET_RETURN_IF_ERROR(WithMemoryFor([&] { return UseOf("weights", state.options, device); },
                                            [&] { return state.HoldWhole(); }));
    }
    return learner;
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

void PolicyLearner::InitializeRandom(uint64_t seed) {
  const at::NoGradGuard no_grad;
  const at::Tensor host = state_->HostArena();
  InitializeWeights(state_->layout, state_->options.model.initializer_range, seed, host);
  state_->Adopt(host);
}

absl::Status PolicyLearner::LoadModel(const ModelFiles& files) {
  const at::NoGradGuard no_grad;
  const at::Tensor host = state_->HostArena();
  FRESHET_RETURN_IF_ERROR(FillArena(files, state_->layout, host));
  state_->Adopt(host);
  return absl::OkStatus();
}

absl::Status PolicyLearner::LoadMasters(const std::string& checkpoint_dir) {
  const at::NoGradGuard no_grad;
  const at::Tensor host = state_->HostArena();
  FRESHET_RETURN_IF_ERROR(FillMasters(checkpoint_dir, state_->layout, host));
  state_->Adopt(host);
  return absl::OkStatus();
}

void PolicyLearner::FreezeReference() {
  state_->reference = WithMemoryFor([this] { return ReferenceOf(state_->options, state_->device); },
                                    [this] { return state_->weights.clone(); });
}

absl::Status PolicyLearner::LoadReference(const std::string& checkpoint_dir) {
  const at::Tensor reference = at::zeros({state_->layout.num_elements}, at::kFloat);
  FRESHET_RETURN_IF_ERROR(FillMasters(checkpoint_dir, state_->layout, reference));
  state_->reference =
      WithMemoryFor([this] { return ReferenceOf(state_->options, state_->device); },
                    [&] { return reference.to(state_->type()).to(state_->device); });
  return absl::OkStatus();
}

absl::Status PolicyLearner::LoadOptimizer(const std::string& checkpoint_dir,
                                          int64_t optimizer_steps) {
  FRESHET_ASSIGN_OR_RETURN(const auto file, OpenOptimizer(checkpoint_dir));
  const auto zeros = [&] { return at::zeros({state_->layout.num_elements}, at::kFloat); };
  AdamWState state{optimizer_steps, zeros(), zeros()};
  for (const Parameter& parameter : state_->parameters) {
    const ParameterRange& range = parameter.range;
    const auto read = [&](const char* prefix, const at::Tensor& to) {
      return ReadFloats(*file, prefix + range.name, parameter.shape,
                        to.mutable_data_ptr<float>() + range.begin);
    };
    FRESHET_RETURN_IF_ERROR(read("exp_avg.", state.exp_avg));
    FRESHET_RETURN_IF_ERROR(read("exp_avg_sq.", state.exp_avg_sq));
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
    state_->ZeroGradients();
    const Runs runs = state_->Split(trees);
    std::vector<double> nll(runs.size());
    const auto run_loss = [&](size_t run) -> absl::StatusOr<at::Tensor> {
      const TargetLogprobs out = state_->Forward(
          state_->PolicyWeights(), PackTrees(Select(trees, runs.trees[run])), 1.0, Entropy::kNone);
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
  const absl::Status status = state_->ResetOptimizer(/*rank=*/0);
  FRESHET_CHECK(status.ok());  // Create validated the same options
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
  if (state_->divides_weights()) {
    at::Tensor& whole = state_->published;
    if (!whole.defined()) whole = at::empty({state_->layout.num_elements}, state_->type());
    host = whole;
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

absl::StatusOr<std::shared_ptr<const LearnerState>> PolicyLearner::Snapshot() const {
  try {
    const at::NoGradGuard no_grad;
    const auto copy_use = [this] { return CheckpointCopyOf(state_->options); };
    auto snapshot = std::make_shared<LearnerState>();
    at::Tensor masters = state_->masters;
    AdamWState optimizer = state_->optimizer->GetState();
    const std::array<at::Tensor*, 3> tensors = {&masters, &optimizer.exp_avg,
                                                &optimizer.exp_avg_sq};
    bool copies = false;
    if (state_->divided()) {
      FRESHET_ASSIGN_OR_RETURN(const auto gathered, state_->GatherSnapshot());
      for (size_t i = 0; i < tensors.size(); ++i) *tensors[i] = gathered->wholes[i];
      snapshot->loan = gathered;
      snapshot->wait = [gathered] {
        while (!gathered->done.WaitFor(kLoanWarning)) {
          FRESHET_LOG(Warning) << "event=waiting reason=" << LogQuoted("ranks to send their state");
        }
        return gathered->status;
      };
    } else if (state_->device.is_cpu()) {
      const SnapshotDecision decision = DecideSnapshot(state_->options, state_->tokens_at_once);
      copies = decision.copies;
      if (!copies) {
        FRESHET_LOG(Info) << "event=snapshot_lent reason=" << LogQuoted(decision.reason);
        snapshot->loan = state_->Lend();
      }
    } else {
      WithMemoryFor(copy_use, [&] {
        for (at::Tensor* tensor : tensors) *tensor = tensor->to(at::kCPU);
      });
      snapshot->loan = std::make_shared<const std::array<at::Tensor, 3>>(
          std::array{masters, optimizer.exp_avg, optimizer.exp_avg_sq});
    }
    WithMemoryFor(copy_use, [&] {
      for (const ParameterEntry& entry : state_->layout.entries) {
        snapshot->model.push_back(Part(entry.name, masters, entry.offset, entry.shape, copies));
      }
      for (const auto& [range, shape] : state_->parameters) {
        snapshot->optimizer.push_back(
            Part("exp_avg." + range.name, optimizer.exp_avg, range.begin, shape, copies));
        snapshot->optimizer.push_back(
            Part("exp_avg_sq." + range.name, optimizer.exp_avg_sq, range.begin, shape, copies));
      }
    });
    snapshot->optimizer_steps = optimizer.step;
    return std::shared_ptr<const LearnerState>(std::move(snapshot));
  } catch (const std::exception& error) {
    return TorchError(error);
  }
}

std::vector<WeightEntry> PolicyLearner::WeightEntries() const {
  const Dtype dtype = state_->options.bf16 ? Dtype::kBf16 : Dtype::kF32;
  std::vector<WeightEntry> entries;
  for (const ParameterEntry& entry : state_->layout.entries) {
    entries.push_back({entry.name, std::string(DtypeName(dtype)), entry.shape,
                       entry.offset * static_cast<int64_t>(DtypeBytes(dtype))});
  }
  return entries;
}

int64_t PolicyLearner::num_parameters() const { return state_->layout.num_parameters; }

const PolicyLearnerOptions& PolicyLearner::options() const { return state_->options; }

int PolicyLearner::threads() const { return state_->microbatches->threads(); }

}  // namespace freshet
