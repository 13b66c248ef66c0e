#include "rollout/engine/native_engine.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/layer_ops.h"
#include "model/transformer.h"
#include "rollout/engine/engine_call.h"
#include "rollout/engine/paged_attention.h"

namespace freshet {
namespace {

constexpr int64_t kDefaultCacheBytes = int64_t{4} << 30;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t CacheBlocks(const ModelConfig& config, const NativeEngineOptions& options) {
  if (options.cache_blocks > 0) return options.cache_blocks;
  const int64_t full = CeilDiv(config.max_position_embeddings, kKvBlockTokens) + 1;
  const int64_t block_bytes = config.num_hidden_layers * config.num_key_value_heads * 2 *
                              config.head_dim * kKvBlockTokens *
                              static_cast<int64_t>(sizeof(float));
  const int64_t affordable = std::max<int64_t>(full * 2, kDefaultCacheBytes / block_bytes);
  return std::min(affordable, (options.max_sequences + 1) * full * 2);
}

}  // namespace

// One lane's weights and the model state that uses them.
struct NativeEngine::LaneState {
  std::optional<WeightSnapshot> snapshot;  // owns the bytes that `weights` views
  TransformerWeights weights;
};

struct NativeEngine::Model {
  ParameterLayout layout;
  Transformer transformer;
  at::Tensor logits;  // of the batch's wanted rows, fp32 [wants, V]
};

absl::StatusOr<std::unique_ptr<NativeEngine>> NativeEngine::Create(
    const ModelConfig& config, const NativeEngineOptions& options) {
  if (options.max_sequences < 1) {
    return InvalidArgument("max_sequences ", options.max_sequences, " is below 1");
  }
  if (options.max_batch_tokens < 1) {
    return InvalidArgument("max_batch_tokens ", options.max_batch_tokens, " is below 1");
  }
  if (options.cache_blocks < 0) {
    return InvalidArgument("cache_blocks ", options.cache_blocks, " is below 0");
  }
  FRESHET_RETURN_IF_ERROR(config.Validate());
  try {
    return std::unique_ptr<NativeEngine>(new NativeEngine(config, options));
  } catch (const std::exception& error) {
    return Internal("cannot create the engine: ", std::string(error.what()).substr(0, 300));
  }
}

NativeEngine::NativeEngine(const ModelConfig& config, const NativeEngineOptions& options)
    : config_(config),
      options_(options),
      scheduler_(config,
                 {options.max_sequences, options.max_batch_tokens, CacheBlocks(config, options)}),
      model_(new Model{MakeParameterLayout(config), Transformer(config), {}}) {
  for (auto& lane : lanes_) lane = std::make_unique<LaneState>();
}

NativeEngine::~NativeEngine() = default;

int64_t NativeEngine::Admissible(int64_t prompt_tokens, int64_t num_samples,
                                 const SamplingParams& sampling, int64_t most) const {
  return scheduler_.Admissible(prompt_tokens, num_samples, sampling, most);
}

absl::Status NativeEngine::Submit(GenerationRequest request) {
  FRESHET_RETURN_IF_ERROR(scheduler_.CheckRequest(request));
  if (!lanes_[static_cast<int>(request.lane)]->snapshot.has_value()) {
    return FailedPrecondition("the engine has no weights yet");
  }
  return CallEngine([&] { return scheduler_.Submit(std::move(request)); });
}

bool NativeEngine::Idle() const {
  return (paused_ || !scheduler_.HasWork(Lane::kRollout)) && !scheduler_.HasWork(Lane::kEvaluation);
}

absl::StatusOr<std::vector<GenerationOutput>> NativeEngine::Poll() {
  return CallEngine([this]() -> absl::StatusOr<std::vector<GenerationOutput>> {
    const c10::InferenceMode inference;
    std::vector<GenerationOutput> finished;
    for (const Lane lane : {Lane::kRollout, Lane::kEvaluation}) {
      if (paused_ && lane == Lane::kRollout) continue;
      const EngineBatch batch = scheduler_.Fill(lane);
      if (batch.size() == 0) continue;
      const LaneState& state = *lanes_[static_cast<int>(lane)];
      RunBatch(state, batch);
      const float* logits = batch.wants.empty() ? nullptr : model_->logits.const_data_ptr<float>();
      std::vector<GenerationOutput> outputs =
          scheduler_.Accept(lane, batch, logits, state.snapshot->manifest.policy);
      finished.insert(finished.end(), std::make_move_iterator(outputs.begin()),
                      std::make_move_iterator(outputs.end()));
    }
    return finished;
  });
}

void NativeEngine::RunBatch(const LaneState& lane, const EngineBatch& batch) {
  const int64_t tokens = batch.size();
  const int64_t rows = PadRows(tokens);
  at::Tensor ids = at::zeros({rows}, at::kLong);
  at::Tensor positions = at::zeros({rows}, at::kLong);
  std::copy(batch.token_ids.begin(), batch.token_ids.end(), ids.mutable_data_ptr<int64_t>());
  std::copy(batch.positions.begin(), batch.positions.end(), positions.mutable_data_ptr<int64_t>());
  const int64_t heads = config_.num_attention_heads;
  const int64_t dim = config_.head_dim;
  const auto attention = [&](int64_t layer, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v) {
    const float* key = k.const_data_ptr<float>();
    const float* value = v.const_data_ptr<float>();
    for (int64_t i = 0; i < tokens; ++i) {
      const auto& [block, slot] = batch.slots[static_cast<size_t>(i)];
      scheduler_.cache().Write(layer, block, slot, key + i * k.stride(0), value + i * v.stride(0));
    }
    at::Tensor out = at::zeros({rows, heads * dim}, at::kFloat);
    PagedAttention(scheduler_.cache(), layer, config_.Window(layer), batch.queries, heads,
                   q.const_data_ptr<float>(), q.stride(0), out.mutable_data_ptr<float>());
    return out;
  };
  const at::Tensor hidden = model_->transformer.Forward(lane.weights, ids, positions, attention);

  // Logits of the wanted rows, padded as well.
  const auto wanted = static_cast<int64_t>(batch.wants.size());
  if (wanted == 0) return;
  at::Tensor index = at::zeros({PadRows(wanted)}, at::kLong);
  for (int64_t i = 0; i < wanted; ++i) {
    index.mutable_data_ptr<int64_t>()[i] = batch.wants[static_cast<size_t>(i)].row;
  }
  model_->logits = Transformer::Logits(lane.weights, hidden.index_select(0, index)).contiguous();
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
  FRESHET_RETURN_IF_ERROR(scheduler_.CheckRequest(request));
  if (ids.back() < 0 || ids.back() >= config_.vocab_size) {
    return InvalidArgument("token ", ids.back(), " is outside of the vocabulary of ",
                           config_.vocab_size);
  }
  LaneState& lane = *lanes_[static_cast<int>(Lane::kRollout)];
  if (!lane.snapshot.has_value()) return FailedPrecondition("the engine has no weights yet");
  KvCache& cache = scheduler_.cache();
  const int64_t needed = CeilDiv(static_cast<int64_t>(ids.size()) - 1, kKvBlockTokens);
  if (needed > cache.num_free()) {
    return ResourceExhausted("no room for ", ids.size(), " tokens: ", needed,
                             " cache blocks are needed, ", cache.num_free(), " are free");
  }
  std::vector<float> logprobs;
  std::vector<int32_t> blocks;
  const absl::Status status = CallEngine([&] {
    const c10::InferenceMode inference;
    blocks.reserve(ids.size() / kKvBlockTokens + 1);
    const auto last = static_cast<int64_t>(ids.size()) - 1;
    const int64_t chunk = one_by_one ? 1 : options_.max_batch_tokens;
    for (int64_t begin = 0; begin < last; begin += chunk) {
      EngineBatch batch;
      for (int64_t i = begin; i < std::min(last, begin + chunk); ++i) {
        if (i % kKvBlockTokens == 0) blocks.push_back(cache.Allocate());
        batch.Add(ids[static_cast<size_t>(i)], i, blocks);
        batch.wants.push_back({nullptr, nullptr, batch.size() - 1});
      }
      RunBatch(lane, batch);
      const at::Tensor table = at::log_softmax(model_->logits, -1);
      const float* rows = table.const_data_ptr<float>();
      for (int64_t i = 0; i < batch.size(); ++i) {
        const int32_t next = ids[static_cast<size_t>(begin + i) + 1];
        logprobs.push_back(rows[i * config_.vocab_size + next]);
      }
    }
    return absl::OkStatus();
  });
  for (const int32_t block : blocks) cache.Release(block);
  FRESHET_RETURN_IF_ERROR(status);
  return logprobs;
}

absl::Status NativeEngine::LoadWeights(Lane lane, const WeightSnapshot& snapshot) {
  const int64_t expected = model_->layout.num_elements * static_cast<int64_t>(sizeof(float));
  if (snapshot.bytes == nullptr || static_cast<int64_t>(snapshot.bytes->size()) != expected) {
    return InvalidArgument("weights of version ", snapshot.manifest.policy.version, ": ",
                           snapshot.bytes == nullptr ? 0 : snapshot.bytes->size(),
                           " bytes, this model has ", expected);
  }
  try {
    const c10::InferenceMode inference;
    // The tensor shares the snapshot's immutable bytes and keeps them alive.
    const WeightBytes owner = snapshot.bytes;
    // from_blob requires a mutable pointer; nothing writes through it.
    void* data = const_cast<std::byte*>(owner->data());
    const at::Tensor flat = at::from_blob(
        data, {model_->layout.num_elements}, [owner](void*) {}, at::kFloat);
    LaneState& state = *lanes_[static_cast<int>(lane)];
    state.weights =
        CastWeights(ViewWeights(model_->layout, flat), options_.bf16 ? at::kBFloat16 : at::kFloat);
    if (lane == Lane::kRollout && state.snapshot.has_value()) ++weight_swaps_;
    state.snapshot = snapshot;
    if (options_.kv == KvPolicy::kRecompute) scheduler_.ForgetCache(lane);
  } catch (const std::exception& error) {
    return Internal("weights could not be loaded: ", std::string(error.what()).substr(0, 300));
  }
  return absl::OkStatus();
}

PolicyVersion NativeEngine::version(Lane lane) const {
  const LaneState& state = *lanes_[static_cast<int>(lane)];
  return state.snapshot.has_value() ? state.snapshot->manifest.policy : PolicyVersion{-1, -1};
}

EngineStats NativeEngine::stats() const {
  EngineStats stats = scheduler_.stats();
  stats.weight_swaps = weight_swaps_;
  return stats;
}

}  // namespace freshet
