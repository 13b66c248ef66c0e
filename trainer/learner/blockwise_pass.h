#ifndef FRESHET_TRAINER_LEARNER_BLOCKWISE_PASS_H_
#define FRESHET_TRAINER_LEARNER_BLOCKWISE_PASS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collective/communicator.h"
#include "model/packed_forward.h"
#include "trainer/learner/block_exchange.h"
#include "trainer/learner/microbatches.h"

namespace freshet {

// Passes of ranks that divide the parameters among themselves (fully sharded data parallelism; Zhao
// et al. 2023, arXiv:2304.11277): a block is gathered, computed for all microbatches, and dropped.
// So a pass gathers each block once however many microbatches there are, and ranks may have
// different numbers of them. The inputs of all layers are kept for the backward pass, which
// computes the layers again. Results have the same bits as those of PackedForward, and of the
// microbatches' gradients added in their order.
//
// All ranks call the same functions. An error of this rank's computation does not keep it from
// taking part in the exchange, because the others would wait: see failed().
class BlockwisePass {
 public:
  // What outlives the pass.
  struct Parts {
    const Transformer& model;
    const ParameterLayout& layout;
    const ShardLayout& shards;
    Communicator& ranks;
    Microbatches& microbatches;
    at::Device device;
    std::function<void(bool)> on_wait;  // for a block: before and after
    absl::Duration patience;            // how long other ranks may take to compute
  };

  // `type`: of the matrices.
  BlockwisePass(Parts parts, const std::vector<PackedBatch>& batches, std::vector<int64_t> tokens,
                at::ScalarType type);

  // `weights`: this rank's state, in the type of the matrices. `take` gets the results of each
  // microbatch, on several threads. Errors of Communicator.
  absl::Status Logprobs(
      const at::Tensor& weights, double temperature, Entropy entropy,
      absl::FunctionRef<absl::Status(size_t microbatch, const TargetLogprobs&)> take);

  // Writes the sum over all ranks of the gradients of `loss` to this rank's `gradients` (fp32).
  absl::Status AddGradients(
      const at::Tensor& weights, const at::Tensor& gradients, double temperature, Entropy entropy,
      absl::FunctionRef<absl::StatusOr<at::Tensor>(size_t microbatch, const TargetLogprobs&)> loss);

  // The first error of a computation; what came after it was not computed.
  const absl::Status& failed() const { return failed_; }

 private:
  struct Item {
    PackedInputs inputs;
    AttentionFn attention;
    std::vector<at::Tensor> x;  // the residual stream before each layer, or only the last one
    at::Tensor gradient;        // of the last one
  };
  struct Head {
    at::Tensor norm, lm_head;
  };

  bool tied() const { return parts_.layout.lm_head.offset == parts_.layout.embed.offset; }
  size_t LastBlock() const { return parts_.shards.blocks().size() - 1; }
  std::vector<size_t> ForwardBlocks() const;
  at::Tensor EmptySums(size_t block) const;
  at::Tensor HiddenOf(const at::Tensor& x, const at::Tensor& norm) const;
  TransformerWeights::Layer LayerOf(size_t layer, const at::Tensor& block) const;
  void ForEach(absl::FunctionRef<absl::Status(Item& item, size_t microbatch)> task);
  // Adds the tensors of each microbatch to `sums`, in order; undefined ones are left out.
  // `may_add`: see Microbatches::ForEachInOrder.
  void AddInOrder(
      absl::FunctionRef<absl::StatusOr<std::vector<at::Tensor>>(Item&, size_t, bool may_add)>
          compute,
      const std::vector<at::Tensor>& sums);
  absl::Status Forward(BlockExchange& exchange, bool keep);
  absl::StatusOr<Head> TakeHead(BlockExchange& exchange) const;
  absl::Status LayerBackward(BlockExchange& exchange, size_t layer, const at::Tensor& gradients);
  at::Tensor EmbeddingSums();

  const Parts parts_;
  std::vector<Item> items_;
  const std::vector<int64_t> tokens_;
  const at::ScalarType type_;
  absl::Status failed_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LEARNER_BLOCKWISE_PASS_H_
