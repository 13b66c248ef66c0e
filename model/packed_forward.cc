#include "model/packed_forward.h"

#include <utility>
#include <vector>

#include "model/tensor_convert.h"

namespace freshet {

PackedInputs::PackedInputs(const PackedBatch& batch, at::Device device, at::ScalarType type)
    : attention_(std::make_shared<const TreeAttention>(batch.trees, device, type)) {
  const auto on_device = [&](const std::vector<int64_t>& numbers) {
    return ToTensor(numbers).to(device);
  };
  token_ids_N_ = on_device(batch.token_ids);
  positions_N_ = on_device(batch.positions);
  logit_rows_ = on_device(batch.logit_rows);
  target_logit_rows_ = on_device(batch.target_logit_rows);
  target_ids_ = on_device(batch.target_ids);
}

AttentionFn PackedInputs::Attention(const ModelConfig& config) const {
  return [&config, attention = attention_](int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v) {
    return attention->Attend(config.Window(layer), q, k, v);
  };
}

TargetLogprobs PackedInputs::Logprobs(const at::Tensor& hidden_NH, const at::Tensor& lm_head_VH,
                                      double temperature, Entropy entropy,
                                      const at::Tensor& head_gradients_VH) const {
  return HeadLogprobs(hidden_NH.index_select(0, logit_rows_), lm_head_VH, target_logit_rows_,
                      target_ids_, temperature, entropy, head_gradients_VH);
}

TargetLogprobs PackedForward(const Transformer& model, const TransformerWeights& weights,
                             const PackedBatch& batch, double temperature, Entropy entropy,
                             bool recompute, const at::Tensor& head_gradients_VH) {
  const PackedInputs inputs(batch, weights.embed_VH.device(), weights.embed_VH.scalar_type());
  const at::Tensor hidden = model.Forward(weights, inputs.token_ids(), inputs.positions(),
                                          inputs.Attention(model.config()), recompute);
  return inputs.Logprobs(hidden, weights.lm_head_VH, temperature, entropy, head_gradients_VH);
}

}  // namespace freshet
