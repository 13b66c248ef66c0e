#ifndef FRESHET_MODEL_RECOMPUTE_H_
#define FRESHET_MODEL_RECOMPUTE_H_

#include <functional>
#include <vector>

#include "model/torch.h"

namespace freshet {

// A differentiable function of some tensors. It depends on nothing else that changes.
using BlockFn = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

// block(inputs), of which only the inputs are kept for the backward pass: it computes the block
// again (activation checkpointing; Chen et al. 2016, arXiv:1604.06174). The result and gradients
// have the same bits as without it. All inputs are defined.
at::Tensor Recompute(const BlockFn& block, const std::vector<at::Tensor>& inputs);

}  // namespace freshet

#endif  // FRESHET_MODEL_RECOMPUTE_H_
