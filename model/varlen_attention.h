#ifndef FRESHET_MODEL_VARLEN_ATTENTION_H_
#define FRESHET_MODEL_VARLEN_ATTENTION_H_

#include <cstdint>
#include <vector>

#include "model/cuda_layer_ops.h"
#include "model/torch.h"

namespace freshet {

// Consecutive queries of a sequence, which are its last tokens, and the rows of all its keys.
struct VarlenSequence {
  int64_t queries = 0;
  std::vector<int64_t> keys;
};

// Causal attention of sequences of different lengths with ATen's fused CUDA kernels:
// FlashAttention-2 (arXiv:2307.08691) in bf16, or the memory-efficient kernel (arXiv:2112.05682) in
// fp32. Nothing of the size queries x keys is stored; the keys and values of every sequence are
// copied, in fp32 for every query head, and kept for the backward pass.
class VarlenAttention {
 public:
  // Queries are in the order of the sequences, keys are among `rows` rows. `type`: kBFloat16 or
  // kFloat, of the computation. `differentiable`: gradients may be computed. Waits for the copies
  // to `device`.
  VarlenAttention(const std::vector<VarlenSequence>& sequences, int64_t rows, at::Device device,
                  at::ScalarType type, bool differentiable);

  // Whether the kernels can compute it: heads of `dim` numbers, a window or none (0).
  bool Supports(int64_t dim, int64_t window) const;

  // q [queries, A, D], k and v [rows, K, D]; K divides A. A query sees the last `window` keys up to
  // its own (0: all). Returns `type` [queries, A * D]. Differentiable; the order of additions in
  // gradients varies, except in LibTorch's deterministic mode.
  at::Tensor Attend(int64_t window, const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v) const;

 private:
  at::Tensor Gather(const at::Tensor& x) const;

  at::ScalarType type_;
  GatheredRows keys_;                     // those of k and v, by sequence
  bool in_order_ = false;                 // they are all rows in their order
  at::Tensor query_starts_, key_starts_;  // int32 [sequences + 1]
  int64_t most_queries_ = 0, most_keys_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_MODEL_VARLEN_ATTENTION_H_
