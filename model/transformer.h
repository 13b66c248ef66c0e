#ifndef FRESHET_MODEL_TRANSFORMER_H_
#define FRESHET_MODEL_TRANSFORMER_H_

#include <functional>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "model/parameter_layout.h"
#include "model/torch.h"

namespace freshet {

// Shape legend: N packed tokens, H hidden, A query heads, K key/value heads, D head size,
// F intermediate (of one expert in a mixture), E experts, V vocabulary.

// Parameters as tensors, with fused blocks as in ParameterLayout: views of a flat arena, fp32 or
// bf16, or what WidenVectors makes of them.
struct TransformerWeights {
  // Shapes: ParameterLayout. Tensors that the model does not have are undefined.
  struct Mlp {
    at::Tensor gate_up, gate_up_bias, down, down_bias;
  };
  struct Layer {
    at::Tensor input_norm_H, qkv, qkv_bias, q_norm_D, k_norm_D, o, o_bias, post_norm_H, router;
    std::vector<Mlp> mlps;  // one, or one per expert
  };
  at::Tensor embed_VH;
  std::vector<Layer> layers;
  at::Tensor norm_H;
  at::Tensor lm_head_VH;  // [1, H] of a scalar head
};

// Views into `flat` (layout.num_elements).
TransformerWeights ViewWeights(const ParameterLayout& layout, const at::Tensor& flat);
// The same for a part of the arena: `flat` holds its elements from `begin` on.
at::Tensor ViewBlock(const ParameterBlock& block, const at::Tensor& flat, int64_t begin);
TransformerWeights::Layer ViewLayer(const ParameterLayout::Layer& layer, const at::Tensor& flat,
                                    int64_t begin);
// With a tied head as a tensor of its own, over the same memory, so that its gradients are kept
// apart from those of the embedding.
TransformerWeights SeparateHead(TransformerWeights weights);

using TensorVisitor = std::function<void(const std::string& name, at::Tensor&)>;
// Calls `visit` on every tensor that is defined, in the order of the arena. A tied head is not
// visited again.
void ForEachTensor(TransformerWeights& weights, const TensorVisitor& visit);
// The same for one layer; names begin with `prefix`.
void ForEachTensor(TransformerWeights::Layer& layer, const std::string& prefix,
                   const TensorVisitor& visit);

// Parameters of a bf16 arena as a forward pass uses them: views of the matrices, and routers,
// vectors and a scalar head in fp32. `weights`: views of the arena.
TransformerWeights WidenVectors(const TransformerWeights& weights);
void WidenVectors(TransformerWeights::Layer& layer);
// The same with gradients, which pass to `masters` (fp32) as if nothing was rounded.
TransformerWeights WidenVectors(const TransformerWeights& weights,
                                const TransformerWeights& masters);

// Random initial weights: matrices N(0, initializer_range), norms 1, biases 0. Counter-based in
// parameter order: the same seed gives the same bits on every machine.
void InitializeWeights(const ParameterLayout& layout, double initializer_range, uint64_t seed,
                       const at::Tensor& flat);

// Attention of one layer over packed tokens: (layer, q [N,A,D], k [N,K,D], v [N,K,D]) -> [N, A*D].
// The rotary embedding is already applied to q and k. With bf16 matrices, q, k and v hold bf16
// numbers, as in a bf16 engine, and on a GPU they have that type.
using AttentionFn = std::function<at::Tensor(int64_t layer, const at::Tensor& q_NAD,
                                             const at::Tensor& k_NKD, const at::Tensor& v_NKD)>;

// Decoder of every supported architecture: RMSNorm, rotary half-rotation as in Hugging Face, SwiGLU
// or a mixture of experts, optional biases and norms of query and key heads. The caller supplies
// attention: the trainer's packed differentiable one, or the engine's over its KV cache, so both
// share the forward code. Thread-compatible: const methods may run concurrently.
class Transformer {
 public:
  // `device`: of all tensors.
  explicit Transformer(const ModelConfig& config, at::Device device = at::kCPU);

  // Hidden states after the last norm, fp32 [N, H]. token_ids_N and positions_N are int64; position
  // < max_position_embeddings. With `recompute`, the backward pass computes each layer again
  // (recompute.h); `attention` is then called by it too, and copied.
  at::Tensor Forward(const TransformerWeights& weights, const at::Tensor& token_ids_N,
                     const at::Tensor& positions_N, const AttentionFn& attention,
                     bool recompute = false) const;

  // Layer `index`, of the residual stream x [N, H].
  at::Tensor ApplyLayer(const TransformerWeights::Layer& layer, int64_t index, const at::Tensor& x,
                        const at::Tensor& positions_N, const AttentionFn& attention) const;

  // fp32 logits of hidden rows, [rows, V]; [rows, 1] of a scalar head.
  static at::Tensor Logits(const TransformerWeights& weights, const at::Tensor& hidden);

  const ModelConfig& config() const { return config_; }
  // Of the rotary embedding, fp32 [max_position_embeddings, D/2].
  const at::Tensor& cos() const { return cos_TD_; }
  const at::Tensor& sin() const { return sin_TD_; }

 private:
  ModelConfig config_;
  at::Tensor cos_TD_;  // [max_position_embeddings, D/2]
  at::Tensor sin_TD_;
};

}  // namespace freshet

#endif  // FRESHET_MODEL_TRANSFORMER_H_
