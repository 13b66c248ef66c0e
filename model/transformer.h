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
// bf16, or what CastWeights makes of them.
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
  at::Tensor lm_head_VH;
};

// Views into `flat` (layout.num_elements).
TransformerWeights ViewWeights(const ParameterLayout& layout, const at::Tensor& flat);

// Calls `visit(name, tensor)` on every tensor of `weights`, in the order of the arena. A tied head
// is not visited again.
void ForEachTensor(TransformerWeights& weights,
                   const std::function<void(const std::string&, at::Tensor&)>& visit);

// Rounds all parameters to `dtype`. Matrices get this type; routers and vectors are fp32. Gradients
// pass as if nothing was rounded. Returns `weights` unchanged for fp32.
TransformerWeights CastWeights(const TransformerWeights& weights, at::ScalarType dtype);

// Random initial weights: matrices N(0, initializer_range), norms 1, biases 0. Counter-based in
// parameter order: the same seed gives the same bits on every machine.
void InitializeWeights(const ParameterLayout& layout, double initializer_range, uint64_t seed,
                       const at::Tensor& flat);

// Attention of one layer over packed tokens: (layer, q [N,A,D], k [N,K,D], v [N,K,D]) -> [N, A*D].
// The rotary embedding is already applied to q and k. With bf16 matrices, q, k and v hold
// bf16 numbers, as in a bf16 engine.
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
  // < max_position_embeddings.
  at::Tensor Forward(const TransformerWeights& weights, const at::Tensor& token_ids_N,
                     const at::Tensor& positions_N, const AttentionFn& attention) const;

  // fp32 logits of hidden rows, [rows, V].
  static at::Tensor Logits(const TransformerWeights& weights, const at::Tensor& hidden);

  const ModelConfig& config() const { return config_; }

 private:
  ModelConfig config_;
  at::Tensor cos_TD_;  // [max_position_embeddings, D/2]
  at::Tensor sin_TD_;
};

}  // namespace freshet

#endif  // FRESHET_MODEL_TRANSFORMER_H_
