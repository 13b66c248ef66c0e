#include "model/packed_forward.h"

#include <memory>
#include <vector>

#include "model/tensor_convert.h"
#include "model/tree_attention.h"

namespace freshet {

TargetLogprobs PackedForward(const Transformer& model, const TransformerWeights& weights,
                             const PackedBatch& batch, double temperature, Entropy entropy,
                             bool recompute) {
  const auto trees = std::make_shared<const std::vector<PackedTree>>(batch.trees);
  const at::Tensor hidden = model.Forward(
      weights, ToTensor(batch.token_ids), ToTensor(batch.positions),
      [&model, trees](int64_t layer, const at::Tensor& q, const at::Tensor& k,
                      const at::Tensor& v) {
        return TreeAttention(trees, model.config().Window(layer), q, k, v);
      },
      recompute);
  return HeadLogprobs(hidden.index_select(0, ToTensor(batch.logit_rows)), weights.lm_head_VH,
                      ToTensor(batch.target_logit_rows), ToTensor(batch.target_ids), temperature,
                      entropy);
}

}  // namespace freshet
