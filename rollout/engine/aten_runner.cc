#include "rollout/engine/aten_runner.h"

#include <vector>

#include "rollout/engine/aten_attention.h"

namespace freshet {

AtenRunner::AtenRunner(const ModelConfig& config, bool bf16, at::Device device,
                       int64_t cache_blocks)
    : bf16_(bf16),
      device_(device),
      layout_(MakeParameterLayout(config)),
      transformer_(config, device),
      cache_({config.num_hidden_layers, config.num_key_value_heads, config.head_dim,
              bf16 ? KvFormat::kBfloat16 : KvFormat::kFloat32},
             cache_blocks, device) {}

void AtenRunner::LoadWeights(Lane lane, const WeightBytes& arena, Dtype dtype) {
  const c10::InferenceMode inference;
  TransformerWeights& weights = lanes_[static_cast<int>(lane)];
  weights = {};  // the device may have no room for both
  // from_blob requires a mutable pointer; nothing writes through it.
  void* data = const_cast<std::byte*>(arena->data());
  // On the CPU the tensor shares the arena's immutable bytes and keeps them alive.
  const at::Tensor flat = at::from_blob(
                              data, {layout_.num_elements}, [arena](void*) {},
                              dtype == Dtype::kBf16 ? at::kBFloat16 : at::kFloat)
                              .to(device_);
  weights = bf16_ ? WidenVectors(ViewWeights(layout_, flat.to(at::kBFloat16)))
                  : ViewWeights(layout_, flat.to(at::kFloat));
}

const float* AtenRunner::Run(Lane lane, const EngineBatch& batch) {
  const c10::InferenceMode inference;
  const TransformerWeights& weights = lanes_[static_cast<int>(lane)];
  const auto on_device = [&](const std::vector<int64_t>& numbers) {
    return at::tensor(numbers, at::kLong).to(device_);
  };
  AtenAttention attention(batch, device_);
  const at::Tensor hidden = transformer_.Forward(
      weights, on_device(batch.token_ids), on_device(batch.positions),
      [&](int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
        cache_.Write(layer, attention.slots(), k, v);
        return attention.Attend(cache_, layer, transformer_.config().Window(layer), q);
      });
  if (batch.wants.empty()) return nullptr;
  std::vector<int64_t> rows;
  rows.reserve(batch.wants.size());
  for (const EngineBatch::Want& want : batch.wants) rows.push_back(want.row);
  logits_ = Transformer::Logits(weights, hidden.index_select(0, on_device(rows)))
                .to(at::kCPU)
                .contiguous();
  return logits_.const_data_ptr<float>();
}

}  // namespace freshet
