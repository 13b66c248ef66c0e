#include "rollout/engine/aten_runner.h"

#include <algorithm>
#include <vector>

#include "model/layer_ops.h"
#include "rollout/engine/paged_attention.h"

namespace freshet {

AtenRunner::AtenRunner(const ModelConfig& config, bool bf16)
    : bf16_(bf16), layout_(MakeParameterLayout(config)), transformer_(config) {}

void AtenRunner::LoadWeights(Lane lane, const WeightBytes& arena, Dtype dtype) {
  const c10::InferenceMode inference;
  // from_blob requires a mutable pointer; nothing writes through it.
  void* data = const_cast<std::byte*>(arena->data());
  // The tensor shares the arena's immutable bytes and keeps them alive.
  const at::Tensor flat = at::from_blob(
      data, {layout_.num_elements}, [arena](void*) {},
      dtype == Dtype::kBf16 ? at::kBFloat16 : at::kFloat);
  lanes_[static_cast<int>(lane)] = bf16_ ? CastWeights(ViewWeights(layout_, flat), at::kBFloat16)
                                         : ViewWeights(layout_, flat.to(at::kFloat));
}

const float* AtenRunner::Run(Lane lane, const EngineBatch& batch, KvCache& cache) {
  const c10::InferenceMode inference;
  const TransformerWeights& weights = lanes_[static_cast<int>(lane)];
  const ModelConfig& config = transformer_.config();
  const int64_t tokens = batch.size();
  const int64_t rows = PadRows(tokens);
  at::Tensor ids = at::zeros({rows}, at::kLong);
  at::Tensor positions = at::zeros({rows}, at::kLong);
  std::copy(batch.token_ids.begin(), batch.token_ids.end(), ids.mutable_data_ptr<int64_t>());
  std::copy(batch.positions.begin(), batch.positions.end(), positions.mutable_data_ptr<int64_t>());
  const int64_t heads = config.num_attention_heads;
  const int64_t kv_heads = config.num_key_value_heads;
  const std::vector<QueryRun> runs = FindQueryRuns(batch.queries, heads / kv_heads);
  const auto attention = [&](int64_t layer, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v) {
    const float* key = k.const_data_ptr<float>();
    const float* value = v.const_data_ptr<float>();
    for (int64_t i = 0; i < tokens; ++i) {
      const auto& [block, slot] = batch.slots[static_cast<size_t>(i)];
      cache.Write(layer, block, slot, key + i * k.stride(0), value + i * v.stride(0));
    }
    at::Tensor out = at::zeros({rows, heads * config.head_dim}, at::kFloat);
    for (const QueryRun& run : runs) {
      const auto size =
          static_cast<size_t>(PagedScratch(batch.queries, run, heads / kv_heads, config.head_dim));
      scratch_.resize(std::max(scratch_.size(), size));
      const AttentionRows part{q.const_data_ptr<float>() + run.first * q.stride(0), q.stride(0),
                               out.mutable_data_ptr<float>() + run.first * out.stride(0),
                               out.stride(0), heads};
      for (int64_t head = 0; head < kv_heads; ++head) {
        PagedAttention(cache, layer, config.Window(layer), batch.queries, run, head, part,
                       BestCpuKernels(), scratch_.data());
      }
    }
    return out;
  };
  const at::Tensor hidden = transformer_.Forward(weights, ids, positions, attention);

  // Logits of the wanted rows, padded as well.
  const auto wanted = static_cast<int64_t>(batch.wants.size());
  if (wanted == 0) return nullptr;
  at::Tensor index = at::zeros({PadRows(wanted)}, at::kLong);
  for (int64_t i = 0; i < wanted; ++i) {
    index.mutable_data_ptr<int64_t>()[i] = batch.wants[static_cast<size_t>(i)].row;
  }
  logits_ = Transformer::Logits(weights, hidden.index_select(0, index)).contiguous();
  return logits_.const_data_ptr<float>();
}

}  // namespace freshet
