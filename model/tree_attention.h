#ifndef FRESHET_MODEL_TREE_ATTENTION_H_
#define FRESHET_MODEL_TREE_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "model/packed_batch.h"
#include "model/torch.h"

namespace freshet {

// Causal attention over a packed batch, without padding: a token sees its tree's prefix and the
// part of its own suffix up to itself, but at most the last `window` tokens (0: all). Shapes: q [N,
// A, D], k and v [N, K, D], fp32; K divides A. Returns [N, A * D]. Differentiable.
// On the CPU with the kernels of sequence_attention.h.
at::Tensor TreeAttention(std::shared_ptr<const std::vector<PackedTree>> trees, int64_t window,
                         const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// The same with ATen's operations, on any device.
at::Tensor AtenTreeAttention(const std::vector<PackedTree>& trees, int64_t window,
                             const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

}  // namespace freshet

#endif  // FRESHET_MODEL_TREE_ATTENTION_H_
