#ifndef FRESHET_MODEL_TREE_ATTENTION_H_
#define FRESHET_MODEL_TREE_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/packed_batch.h"
#include "model/torch.h"
#include "model/varlen_attention.h"

namespace freshet {

// Causal attention over a packed batch, without padding: a token sees its tree's prefix and the
// part of its own suffix up to itself, but at most the last `window` tokens (0: all). On the CPU
// with the kernels of sequence_attention.h, on a GPU with varlen_attention.h. Thread-compatible.
class TreeAttention {
 public:
  // `type`: of the model's matrices. If it is bf16, queries, keys and values hold bf16 numbers.
  TreeAttention(std::vector<PackedTree> trees, at::Device device, at::ScalarType type);

  // q [N, A, D], k and v [N, K, D], fp32 or on a GPU `type`; K divides A. Returns [N, A * D] in the
  // type of q. Differentiable.
  at::Tensor Attend(int64_t window, const at::Tensor& q, const at::Tensor& k,
                    const at::Tensor& v) const;

 private:
  std::shared_ptr<const std::vector<PackedTree>> trees_;
  std::optional<VarlenAttention> varlen_;  // not on the CPU
};

// The same with ATen's operations, one sequence after the other, on any device.
at::Tensor AtenTreeAttention(const std::vector<PackedTree>& trees, int64_t window,
                             const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

}  // namespace freshet

#endif  // FRESHET_MODEL_TREE_ATTENTION_H_
