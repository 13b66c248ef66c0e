#include "model/packed_forward.h"

#include <limits>

#include "model/tensor_convert.h"

namespace freshet {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// The batch's index plan as tensors, created once and used by every layer with the same window
// (see ModelConfig::Window).
class PackedAttention {
 public:
  PackedAttention(const PackedBatch& batch, int64_t window)
      : num_prefixes_(batch.num_prefixes),
        prefix_width_(batch.prefix_width),
        num_suffixes_(batch.num_suffixes),
        prefix_rows_(ToTensor(batch.prefix_rows)),
        output_rows_(ToTensor(batch.output_rows)) {
    if (window > 0 && window < prefix_width_) prefix_mask_ = MakePrefixMask(prefix_width_, window);
    if (num_suffixes_ == 0) return;
    suffix_query_rows_ = ToTensor(batch.suffix_query_rows);
    suffix_key_rows_ = ToTensor(batch.suffix_key_rows);
    suffix_mask_ = MakeSuffixMask(batch, window);
  }

  at::Tensor operator()(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    at::Tensor out =
        Attend(Gather(q, prefix_rows_, num_prefixes_), Gather(k, prefix_rows_, num_prefixes_),
               Gather(v, prefix_rows_, num_prefixes_), prefix_mask_);
    if (num_suffixes_ > 0) {
      const at::Tensor suffix = Attend(Gather(q, suffix_query_rows_, num_suffixes_),
                                       Gather(k, suffix_key_rows_, num_suffixes_),
                                       Gather(v, suffix_key_rows_, num_suffixes_), suffix_mask_);
      out = at::cat({out, suffix}, 0);
    }
    return out.index_select(0, output_rows_);
  }

 private:
  // Causal if `mask` is undefined. [batch, heads, width, D] -> [batch * width, heads * D]
  static at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& mask) {
    const bool causal = !mask.defined();
    const c10::optional<at::Tensor> additive = causal ? c10::nullopt : c10::make_optional(mask);
    return at::scaled_dot_product_attention(q, k, v, additive, /*dropout_p=*/0.0, causal,
                                            /*scale=*/{}, /*enable_gqa=*/q.size(1) != k.size(1))
        .transpose(1, 2)
        .reshape({q.size(0) * q.size(2), q.size(1) * q.size(3)});
  }

  // [N, heads, D] -> [batch, heads, width, D]
  static at::Tensor Gather(const at::Tensor& x, const at::Tensor& rows, int64_t batch) {
    return x.index_select(0, rows)
        .view({batch, rows.size(0) / batch, x.size(1), x.size(2)})
        .transpose(1, 2);
  }

  // Additive mask [1, 1, P, P]: -inf for later tokens and for those before the window.
  static at::Tensor MakePrefixMask(int64_t width, int64_t window) {
    at::Tensor mask = at::zeros({1, 1, width, width}, at::kFloat);
    float* cell = mask.mutable_data_ptr<float>();
    for (int64_t r = 0; r < width; ++r, cell += width) {
      for (int64_t c = 0; c < width; ++c) {
        if (c > r || c <= r - window) cell[c] = kHidden;
      }
    }
    return mask;
  }

  // Additive mask [S, 1, R, P + R]: -inf for prefix padding, later suffix positions, and tokens
  // before the window.
  static at::Tensor MakeSuffixMask(const PackedBatch& batch, int64_t window) {
    const int64_t keys = batch.prefix_width + batch.suffix_width;
    at::Tensor mask = at::zeros({batch.num_suffixes, 1, batch.suffix_width, keys}, at::kFloat);
    float* cell = mask.mutable_data_ptr<float>();
    for (int64_t s = 0; s < batch.num_suffixes; ++s) {
      const int64_t padding =
          batch.prefix_width - batch.suffix_prefix_sizes[static_cast<size_t>(s)];
      for (int64_t r = 0; r < batch.suffix_width; ++r, cell += keys) {
        const int64_t self = batch.prefix_width + r;  // keys are contiguous from `padding` on
        const int64_t first = window > 0 ? std::max(padding, self - window + 1) : padding;
        for (int64_t c = 0; c < first; ++c) cell[c] = kHidden;
        for (int64_t c = self + 1; c < keys; ++c) cell[c] = kHidden;
      }
    }
    return mask;
  }

  int64_t num_prefixes_, prefix_width_, num_suffixes_;
  at::Tensor prefix_rows_, output_rows_, suffix_query_rows_, suffix_key_rows_;
  at::Tensor prefix_mask_;  // undefined: causal
  at::Tensor suffix_mask_;
};

}  // namespace

TargetLogprobs PackedForward(const Transformer& model, const TransformerWeights& weights,
                             const PackedBatch& batch, double temperature, Entropy entropy) {
  std::map<int64_t, PackedAttention> by_window;
  const at::Tensor hidden = model.Forward(
      weights, ToTensor(batch.token_ids), ToTensor(batch.positions),
      [&](int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
        const int64_t window = model.config().Window(layer);
        return by_window.try_emplace(window, batch, window).first->second(q, k, v);
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
