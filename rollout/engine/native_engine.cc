#include "rollout/engine/native_engine.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/device.h"
#include "model/dtype.h"
#include "model/kernels/softmax.h"
#include "model/memory_use.h"
#include "model/parameter_layout.h"
#include "rollout/engine/aten_runner.h"
#include "rollout/engine/cpu_runner.h"
#include "rollout/engine/engine_call.h"
#include "rollout/engine/engine_memory.h"
#include "rollout/engine/kernels/kernel_choice.h"
#include "rollout/engine/request_check.h"

namespace freshet {
namespace {

EngineLimits MakeLimits(const NativeEngineOptions& options) {
  EngineLimits limits;
  limits.max_sequences = options.max_sequences;
  limits.max_batch_tokens = options.max_batch_tokens;
  limits.prefix_cache = options.prefix_cache;
  limits.expected_new_tokens = options.expected_new_tokens;
  limits.speculative_tokens = options.speculative_tokens;
  return limits;
}

MatrixFormat FormatOf(const NativeEngineOptions& options) {
  if (options.int8_weights) return MatrixFormat::kInt8;
  return options.bf16 ? MatrixFormat::kBfloat16 : MatrixFormat::kFloat32;
}

bool UsesAten(const NativeEngineOptions& options) {
  return options.aten || options.device != "cpu";
}

// Item `item` of the engine's memory plan.
MemoryUse UseOf(std::string_view item, const ModelConfig& config,
                const NativeEngineOptions& options) {
  const MemoryPlan plan = PlanEngine(config, options, options.max_sequences, /*evaluates=*/true);
  const auto found = std::find_if(plan.begin(), plan.end(),
                                  [&](const MemoryItem& planned) { return planned.name == item; });
  FRESHET_CHECK(found != plan.end());
  return {found->name, found->bytes, at::Device(options.device),
          StrCat("lower rollout.kv_cache_bytes (in commands, --kv-cache-bytes)",
                 item == kBatch ? " or rollout.max_batch_tokens" : "",
                 item == kEvaluatedWeights ? ", or evaluate on other rollouts" : "")};
}

absl::StatusOr<std::unique_ptr<ModelRunner>> MakeRunner(const ModelConfig& config,
                                                        const NativeEngineOptions& options) {
  const int64_t cache_blocks = CacheBlocks(config, options);
  if (UsesAten(options)) {
    return std::make_unique<AtenRunner>(config, options.bf16, at::Device(options.device),
                                        cache_blocks, options.max_sequences, options.threads);
  }
  CpuRunnerOptions runner;
  runner.format = FormatOf(options);
  runner.kernels = options.kernels.has_value()
                       ? *options.kernels
                       : KernelsOfThisCpu(runner.format, options.deterministic).kernels;
  runner.threads = options.threads;
  if (options.bf16) runner.kv_format = KvFormat::kBfloat16;
  runner.cache_blocks = cache_blocks;
  return std::make_unique<CpuRunner>(config, runner);
}

// Number format of an arena of `num_elements` parameters, kF32 or kBf16.
absl::StatusOr<Dtype> ArenaDtype(const WeightSnapshot& snapshot, int64_t num_elements) {
  const int64_t version = snapshot.manifest.policy.version;
  const auto bytes = static_cast<int64_t>(snapshot.bytes == nullptr ? 0 : snapshot.bytes->size());
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    if (bytes != num_elements * static_cast<int64_t>(DtypeBytes(dtype))) continue;
    for (const WeightEntry& entry : snapshot.manifest.entries) {
      if (entry.dtype == DtypeName(dtype)) continue;
      return InvalidArgument("weights of version ", version, ": tensor ", entry.name, " has dtype ",
                             entry.dtype, ", but all ", bytes, " bytes are ", DtypeName(dtype));
    }
    return dtype;
  }
  return InvalidArgument("weights of version ", version, ": ", bytes, " bytes, this model has ",
                         4 * num_elements, " in fp32 and ", 2 * num_elements, " in bf16");
}

bool RowsAreFinite(const float* logits, int64_t rows, int64_t vocab_size, ThreadPool& pool) {
  std::atomic<bool> finite = true;
  pool.For(rows, [&](int64_t row, int) {
    if (!AllFinite(logits + row * vocab_size, vocab_size)) finite = false;
  });
  return finite;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NativeEngine>> NativeEngine::Create(
    const ModelConfig& config, const NativeEngineOptions& given) {
  NativeEngineOptions options = given;
  if (options.int8_weights && options.device == "auto") options.device = "cpu";
  FRESHET_ASSIGN_OR_RETURN(const at::Device device, OpenDevice(options.device));
  options.device = device.str();
  if (options.max_sequences < 1) {
    return InvalidArgument("max_sequences ", options.max_sequences, " is below 1");
  }
  if (options.max_batch_tokens < 1) {
    return InvalidArgument("max_batch_tokens ", options.max_batch_tokens, " is below 1");
  }
  if (options.threads < 1) return InvalidArgument("threads ", options.threads, " is below 1");
  if (options.cache_blocks < 0) {
    return InvalidArgument("cache_blocks ", options.cache_blocks, " is below 0");
  }
  if (options.cache_bytes < 1) {
    return InvalidArgument("cache_bytes ", options.cache_bytes, " is below 1");
  }
  if (options.speculative_tokens < 0 || options.speculative_tokens > kMaxDraftTokens) {
    return InvalidArgument("speculative_tokens ", options.speculative_tokens, " is not from 0 to ",
                           kMaxDraftTokens);
  }
  if (options.int8_weights && UsesAten(options)) {
    return InvalidArgument("int8 weights need the CPU kernels, not ATen or device ",
                           options.device);
  }
  if (options.kernels.has_value() && *options.kernels > BestCpuKernels()) {
    return InvalidArgument("this CPU does not have the kernels ", CpuKernelsName(*options.kernels));
  }
  FRESHET_RETURN_IF_ERROR(config.Validate());
  try {
    FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<ModelRunner> runner,
                             WithMemoryFor([&] { return UseOf(kKvCache, config, options); },
                                           [&] { return MakeRunner(config, options); }));
    return std::unique_ptr<NativeEngine>(new NativeEngine(config, options, std::move(runner)));
  } catch (const std::exception& error) {
    return StatusOfException("cannot create the engine", error);
  }
}

NativeEngine::NativeEngine(const ModelConfig& config, const NativeEngineOptions& options,
                           std::unique_ptr<ModelRunner> runner)
    : config_(config),
      options_(options),
      runner_(std::move(runner)),
      scheduler_(config, MakeLimits(options), runner_->cache()),
      num_elements_(MakeParameterLayout(config).num_elements) {}

NativeEngine::~NativeEngine() = default;

int64_t NativeEngine::Admissible(int64_t prompt_tokens, int64_t num_samples,
                                 const SamplingParams& sampling, int64_t most) const {
  return scheduler_.Admissible(prompt_tokens, num_samples, sampling, most);
}

absl::Status NativeEngine::Submit(GenerationRequest request) {
  FRESHET_RETURN_IF_ERROR(CheckRequest(request, config_));
  if (!HasWeights(request.lane)) {
    return FailedPrecondition("the engine has no weights yet");
  }
  return CallEngine([&] { return scheduler_.Submit(std::move(request)); });
}

const float* NativeEngine::Run(Lane lane, const EngineBatch& batch) {
  return WithMemoryFor([this] { return UseOf(kBatch, config_, options_); },
                       [&] { return runner_->Run(lane, batch); });
}

bool NativeEngine::Idle() const {
  return (paused_ || !scheduler_.HasWork(Lane::kRollout)) && !scheduler_.HasWork(Lane::kEvaluation);
}

absl::StatusOr<std::vector<GenerationOutput>> NativeEngine::Poll() {
  return CallEngine([this]() -> absl::StatusOr<std::vector<GenerationOutput>> {
    std::vector<GenerationOutput> finished;
    for (const Lane lane : {Lane::kRollout, Lane::kEvaluation}) {
      if (paused_ && lane == Lane::kRollout) continue;
      const EngineBatch batch = scheduler_.Fill(lane);
      if (batch.size() == 0) continue;
      if (!HasWeights(lane)) return Internal("the lane has no weights: the last ones did not load");
      const float* logits = Run(lane, batch);
      runner_->phases().Enter(Phase::kSampling);
      const auto wanted = static_cast<int64_t>(batch.wants.size());
      // A score that is not finite fails its own request.
      if (!config_.scalar_head &&
          !RowsAreFinite(logits, wanted, config_.vocab_size, runner_->pool())) {
        return Internal("logits of version ", version(lane).version,
                        " are not finite; has the training diverged?");
      }
      std::vector<GenerationOutput> outputs =
          scheduler_.Accept(lane, batch, logits, version(lane), runner_->pool());
      runner_->phases().Enter(Phase::kOther);
      finished.insert(finished.end(), std::make_move_iterator(outputs.begin()),
                      std::make_move_iterator(outputs.end()));
    }
    return finished;
  });
}

std::vector<GenerationOutput> NativeEngine::Cancel(int64_t request_id) {
  return scheduler_.Cancel(request_id);
}

absl::StatusOr<std::vector<float>> NativeEngine::Score(const std::vector<int32_t>& ids,
                                                       bool one_by_one) {
  GenerationRequest request;
  request.prompt_ids = ids;
  request.sample_indices = {0};
  // The last token predicts nothing, so that a sequence may fill the context.
  if (ids.size() > 1) request.prompt_ids.pop_back();
  FRESHET_RETURN_IF_ERROR(CheckRequest(request, config_));
  if (ids.back() < 0 || ids.back() >= config_.vocab_size) {
    return InvalidArgument("token ", ids.back(), " is outside of the vocabulary of ",
                           config_.vocab_size);
  }
  if (!HasWeights(Lane::kRollout)) return FailedPrecondition("the engine has no weights yet");
  KvBlockPool& cache = runner_->cache();
  const int64_t needed = KvBlocksOfGroup(static_cast<int64_t>(ids.size()) - 1, 0, 0);
  if (needed > cache.num_free()) {
    return ResourceExhausted("no room for ", ids.size(), " tokens: ", needed,
                             " cache blocks are needed, ", cache.num_free(), " are free");
  }
  std::vector<float> logprobs;
  std::vector<int32_t> blocks;
  const absl::Status status = CallEngine([&]() -> absl::Status {
    blocks.reserve(ids.size() / kKvBlockTokens + 1);
    const auto last = static_cast<int64_t>(ids.size()) - 1;
    const int64_t chunk = one_by_one ? 1 : options_.max_batch_tokens;
    for (int64_t begin = 0; begin < last; begin += chunk) {
      EngineBatch batch;
      for (int64_t i = begin; i < std::min(last, begin + chunk); ++i) {
        if (i % kKvBlockTokens == 0) blocks.push_back(scheduler_.AllocateBlock());
        batch.Add(ids[static_cast<size_t>(i)], i, blocks);
        batch.wants.push_back({nullptr, nullptr, batch.size() - 1});
      }
      const float* logits = Run(Lane::kRollout, batch);
      if (!AllFinite(logits, batch.size() * config_.vocab_size)) {
        return Internal("the model's logits are not finite");
      }
      for (int64_t i = 0; i < batch.size(); ++i, logits += config_.vocab_size) {
        const int32_t next = ids[static_cast<size_t>(begin + i) + 1];
        logprobs.push_back(LogSoftmaxAt(logits, config_.vocab_size, 1.0, next));
      }
    }
    return absl::OkStatus();
  });
  for (const int32_t block : blocks) cache.Release(block);
  FRESHET_RETURN_IF_ERROR(status);
  return logprobs;
}

absl::Status NativeEngine::LoadWeights(Lane lane, const WeightSnapshot& snapshot) {
  FRESHET_ASSIGN_OR_RETURN(const Dtype dtype, ArenaDtype(snapshot, num_elements_));
  try {
    const char* item = lane == Lane::kEvaluation ? kEvaluatedWeights : kEngineWeights;
    WithMemoryFor([&] { return UseOf(item, config_, options_); },
                  [&] { runner_->LoadWeights(lane, snapshot.bytes, dtype); });
  } catch (const std::exception& error) {
    versions_[static_cast<int>(lane)].reset();
    return StatusOfException("weights could not be loaded", error);
  }
  if (lane == Lane::kRollout && HasWeights(lane)) ++weight_swaps_;
  versions_[static_cast<int>(lane)] = snapshot.manifest.policy;
  scheduler_.WeightsChanged(lane, options_.kv == KvPolicy::kRecompute);
  return absl::OkStatus();
}

std::string NativeEngine::DescribeKernels() const {
  if (UsesAten(options_)) return StrCat("ATen on ", options_.device);
  const KernelChoice& choice = KernelsOfThisCpu(FormatOf(options_), options_.deterministic);
  return StrCat(MatrixFormatName(FormatOf(options_)), " ", CpuKernelsName(choice.kernels), ": ",
                choice.reason);
}

int64_t NativeEngine::context() const {
  // One block for the copy of a prompt's last, partly filled block.
  const int64_t cached = (runner_->cache().num_blocks() - 1) * kKvBlockTokens;
  return std::min(config_.max_position_embeddings, cached);
}

EngineStats NativeEngine::stats() const {
  EngineStats stats = scheduler_.stats();
  stats.weight_swaps = weight_swaps_;
  return stats;
}

}  // namespace freshet
