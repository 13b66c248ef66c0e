#include "model/packed_forward.h"

#include <limits>

#include "model/tensor_convert.h"

namespace freshet {
namespace {

// The batch's index plan as tensors, created once and used by every layer.
class PackedAttention {
 public:
  explicit PackedAttention(const PackedBatch& batch)
      : num_prefixes_(batch.num_prefixes),
        prefix_width_(batch.prefix_width),
        num_suffixes_(batch.num_suffixes),
        suffix_width_(batch.suffix_width),
        prefix_rows_(ToTensor(batch.prefix_rows)),
        output_rows_(ToTensor(batch.output_rows)) {
    if (num_suffixes_ == 0) return;
    suffix_query_rows_ = ToTensor(batch.suffix_query_rows);
    suffix_key_rows_ = ToTensor(batch.suffix_key_rows);
    suffix_mask_ = MakeSuffixMask(batch);
  }

  at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    const int64_t width = q.size(1) * q.size(2);
    at::Tensor out =
        at::scaled_dot_product_attention(
            Gather(q, prefix_rows_, num_prefixes_), Gather(k, prefix_rows_, num_prefixes_),
            Gather(v, prefix_rows_, num_prefixes_), /*attn_mask=*/{}, /*dropout_p=*/0.0,
            /*is_causal=*/true, /*scale=*/{}, /*enable_gqa=*/q.size(1) != k.size(1))
            .transpose(1, 2)
            .reshape({num_prefixes_ * prefix_width_, width});
    if (num_suffixes_ > 0) {
      const at::Tensor suffix =
          at::scaled_dot_product_attention(Gather(q, suffix_query_rows_, num_suffixes_),
                                           Gather(k, suffix_key_rows_, num_suffixes_),
                                           Gather(v, suffix_key_rows_, num_suffixes_), suffix_mask_,
                                           0.0, false, {}, q.size(1) != k.size(1))
              .transpose(1, 2)
              .reshape({num_suffixes_ * suffix_width_, width});
      out = at::cat({out, suffix}, 0);
    }
    return out.index_select(0, output_rows_);
  }

 private:
  // [N, heads, D] -> [batch, heads, width, D]
  static at::Tensor Gather(const at::Tensor& x, const at::Tensor& rows, int64_t batch) {
    return x.index_select(0, rows)
        .view({batch, rows.size(0) / batch, x.size(1), x.size(2)})
        .transpose(1, 2);
  }

  // Additive mask [S, 1, R, P + R]: -inf for prefix padding and later suffix positions.
  static at::Tensor MakeSuffixMask(const PackedBatch& batch) {
    const int64_t keys = batch.prefix_width + batch.suffix_width;
    at::Tensor mask = at::zeros({batch.num_suffixes, 1, batch.suffix_width, keys}, at::kFloat);
    float* cell = mask.mutable_data_ptr<float>();
    constexpr float kHidden = -std::numeric_limits<float>::infinity();
    for (int64_t s = 0; s < batch.num_suffixes; ++s) {
      const int64_t padding =
          batch.prefix_width - batch.suffix_prefix_sizes[static_cast<size_t>(s)];
      for (int64_t r = 0; r < batch.suffix_width; ++r, cell += keys) {
        for (int64_t c = 0; c < padding; ++c) cell[c] = kHidden;
        for (int64_t c = batch.prefix_width + r + 1; c < keys; ++c) cell[c] = kHidden;
      }
    }
    return mask;
  }

  int64_t num_prefixes_, prefix_width_, num_suffixes_, suffix_width_;
  at::Tensor prefix_rows_, output_rows_, suffix_query_rows_, suffix_key_rows_, suffix_mask_;
};

}  // namespace

TargetLogprobs PackedForward(const Transformer& model, const TransformerWeights& weights,
                             const PackedBatch& batch, double temperature, Entropy entropy) {
  const PackedAttention attention(batch);
  const at::Tensor hidden =
      model.Forward(weights, ToTensor(batch.token_ids), ToTensor(batch.positions),
                    [&](int64_t, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
                      return attention(q, k, v);
                    });
  at::Tensor logits =
      Transformer::Logits(weights, hidden.index_select(0, ToTensor(batch.logit_rows)));
  if (temperature != 1.0) logits = logits / temperature;
  const at::Tensor logprobs = at::log_softmax(logits, -1);
  const at::Tensor rows = ToTensor(batch.target_logit_rows);
  const at::Tensor cells = rows * logprobs.size(1) + ToTensor(batch.target_ids);
  TargetLogprobs result;
  result.logprobs_M = logprobs.reshape({-1}).index_select(0, cells);
  if (entropy != Entropy::kNone) {
    const at::Tensor source = entropy == Entropy::kDifferentiable ? logprobs : logprobs.detach();
    result.entropies_M = -(source.exp() * source).sum(-1).index_select(0, rows);
  }
  return result;
}

}  // namespace freshet
