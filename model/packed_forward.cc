#include "model/packed_forward.h"

#include <memory>
#include <vector>

#include "model/tensor_convert.h"
#include "model/tree_attention.h"

namespace freshet {

TargetLogprobs PackedForward(const Transformer& model, const TransformerWeights& weights,
                             const PackedBatch& batch, double temperature, Entropy entropy,
                             bool recompute) {
  const at::Device device = weights.embed_VH.device();
  const auto on_device = [&](const std::vector<int64_t>& numbers) {
    return ToTensor(numbers).to(device);
  };
  const auto attention =
      std::make_shared<const TreeAttention>(batch.trees, device, weights.embed_VH.scalar_type());
  const at::Tensor hidden = model.Forward(
      weights, on_device(batch.token_ids), on_device(batch.positions),
      [&model, attention](int64_t layer, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v) {
        return attention->Attend(model.config().Window(layer), q, k, v);
      },
      recompute);
  return HeadLogprobs(hidden.index_select(0, on_device(batch.logit_rows)), weights.lm_head_VH,
                      on_device(batch.target_logit_rows), on_device(batch.target_ids), temperature,
                      entropy);
}

}  // namespace freshet
