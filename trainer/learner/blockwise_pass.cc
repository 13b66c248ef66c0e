#include "trainer/learner/blockwise_pass.h"

#include <utility>

#include "base/status_macros.h"
#include "model/layer_ops.h"

namespace freshet {
namespace {

// A leaf with the values of `tensor`.
at::Tensor Leaf(const at::Tensor& tensor) { return tensor.detach().set_requires_grad(true); }

// d(value)/d(leaves) times `gradient`; undefined for leaves that it does not depend on.
std::vector<at::Tensor> GradientsOf(const at::Tensor& value, const std::vector<at::Tensor>& leaves,
                                    std::vector<at::Tensor> gradient) {
  return torch::autograd::grad({value}, leaves, gradient, /*retain_graph=*/std::nullopt,
                               /*create_graph=*/false, /*allow_unused=*/true);
}

}  // namespace

BlockwisePass::BlockwisePass(Parts parts, const std::vector<PackedBatch>& batches,
                             std::vector<int64_t> tokens, at::ScalarType type)
    : parts_(std::move(parts)), tokens_(std::move(tokens)), type_(type) {
  for (const PackedBatch& batch : batches) {
    PackedInputs inputs(batch, parts_.device, type);
    AttentionFn attention = inputs.Attention(parts_.model.config());
    items_.push_back({std::move(inputs), std::move(attention), {}, {}});
  }
}

// Embedding, layers, and what the head needs.
std::vector<size_t> BlockwisePass::ForwardBlocks() const {
  std::vector<size_t> blocks(LastBlock() + 1);
  for (size_t block = 0; block < blocks.size(); ++block) blocks[block] = block;
  if (tied()) blocks.push_back(0);
  return blocks;
}

at::Tensor BlockwisePass::EmptySums(size_t block) const {
  return at::zeros({parts_.shards.blocks()[block].part * parts_.ranks.size()},
                   at::TensorOptions(parts_.device).dtype(at::kFloat));
}

at::Tensor BlockwisePass::HiddenOf(const at::Tensor& x, const at::Tensor& norm) const {
  return RmsNorm(x, norm, parts_.model.config().rms_norm_eps);
}

TransformerWeights::Layer BlockwisePass::LayerOf(size_t layer, const at::Tensor& block) const {
  TransformerWeights::Layer views =
      ViewLayer(parts_.layout.layers[layer], block, parts_.shards.blocks()[layer + 1].begin);
  WidenVectors(views);
  return views;
}

void BlockwisePass::ForEach(absl::FunctionRef<absl::Status(Item& item, size_t microbatch)> task) {
  if (!failed_.ok()) return;
  failed_ = parts_.microbatches.ForEach(
      tokens_, [&](size_t microbatch) { return task(items_[microbatch], microbatch); });
}

void BlockwisePass::AddInOrder(
    absl::FunctionRef<absl::StatusOr<std::vector<at::Tensor>>(Item&, size_t, bool may_add)> compute,
    const std::vector<at::Tensor>& sums) {
  if (!failed_.ok()) return;
  failed_ = parts_.microbatches.ForEachInOrder(
      tokens_,
      [&](size_t microbatch, bool may_add) {
        return compute(items_[microbatch], microbatch, may_add);
      },
      [&](const std::vector<at::Tensor>& gradients) {
        for (size_t i = 0; i < sums.size(); ++i) {
          if (gradients[i].defined()) sums[i].add_(gradients[i].to(at::kFloat));
        }
      });
}

absl::Status BlockwisePass::Forward(BlockExchange& exchange, bool keep) {
  FRESHET_ASSIGN_OR_RETURN(at::Tensor block, exchange.Take(parts_.on_wait));
  ForEach([&](Item& item, size_t) {
    const at::NoGradGuard no_grad;
    item.x = {Embed(ViewBlock(parts_.layout.embed, block, 0), item.inputs.token_ids())};
    return absl::OkStatus();
  });
  for (size_t layer = 0; layer < parts_.layout.layers.size(); ++layer) {
    block = at::Tensor();  // before the next one is waited for
    FRESHET_ASSIGN_OR_RETURN(block, exchange.Take(parts_.on_wait));
    const TransformerWeights::Layer weights = LayerOf(layer, block);
    ForEach([&](Item& item, size_t) {
      const at::NoGradGuard no_grad;
      at::Tensor out = parts_.model.ApplyLayer(weights, static_cast<int64_t>(layer), item.x.back(),
                                               item.inputs.positions(), item.attention);
      if (!keep) item.x.clear();
      item.x.push_back(std::move(out));
      return absl::OkStatus();
    });
  }
  return absl::OkStatus();
}

absl::StatusOr<BlockwisePass::Head> BlockwisePass::TakeHead(BlockExchange& exchange) const {
  FRESHET_ASSIGN_OR_RETURN(const at::Tensor block, exchange.Take(parts_.on_wait));
  const int64_t begin = parts_.shards.blocks().back().begin;
  Head head;
  head.norm = ViewBlock(parts_.layout.norm, block, begin).to(at::kFloat);
  if (!tied()) {
    head.lm_head = ViewBlock(parts_.layout.lm_head, block, begin);
    return head;
  }
  FRESHET_ASSIGN_OR_RETURN(const at::Tensor embedding, exchange.Take(parts_.on_wait));
  head.lm_head = ViewBlock(parts_.layout.embed, embedding, 0);
  return head;
}

absl::Status BlockwisePass::Logprobs(
    const at::Tensor& weights, double temperature, Entropy entropy,
    absl::FunctionRef<absl::Status(size_t microbatch, const TargetLogprobs&)> take) {
  BlockExchange exchange(parts_.ranks, parts_.shards, weights, ForwardBlocks(), parts_.patience);
  FRESHET_RETURN_IF_ERROR(Forward(exchange, /*keep=*/false));
  FRESHET_ASSIGN_OR_RETURN(const Head head, TakeHead(exchange));
  ForEach([&](Item& item, size_t microbatch) {
    const at::NoGradGuard no_grad;
    const at::Tensor hidden = HiddenOf(item.x.back(), head.norm);
    item.x.clear();
    return take(microbatch, item.inputs.Logprobs(hidden, head.lm_head, temperature, entropy));
  });
  return exchange.Finish(parts_.on_wait);
}

absl::Status BlockwisePass::AddGradients(
    const at::Tensor& weights, const at::Tensor& gradients, double temperature, Entropy entropy,
    absl::FunctionRef<absl::StatusOr<at::Tensor>(size_t microbatch, const TargetLogprobs&)> loss) {
  std::vector<size_t> blocks = ForwardBlocks();
  for (size_t block = LastBlock() - 1; block > 0; --block) blocks.push_back(block);
  BlockExchange exchange(parts_.ranks, parts_.shards, weights, std::move(blocks), parts_.patience);
  FRESHET_RETURN_IF_ERROR(Forward(exchange, /*keep=*/true));
  at::Tensor head_sums;  // of a tied head, until those of the embedding are there
  {
    FRESHET_ASSIGN_OR_RETURN(const Head head, TakeHead(exchange));
    const at::Tensor sums = EmptySums(LastBlock());
    const int64_t begin = parts_.shards.blocks().back().begin;
    if (tied()) head_sums = EmptySums(0);
    const at::Tensor lm_head_sums = tied() ? ViewBlock(parts_.layout.embed, head_sums, 0)
                                           : ViewBlock(parts_.layout.lm_head, sums, begin);
    AddInOrder(
        [&](Item& item, size_t microbatch,
            bool may_add) -> absl::StatusOr<std::vector<at::Tensor>> {
          const std::vector<at::Tensor> leaves = {Leaf(item.x.back()), Leaf(head.norm),
                                                  Leaf(head.lm_head)};
          item.x.pop_back();
          const at::Tensor hidden = HiddenOf(leaves[0], leaves[1]);
          FRESHET_ASSIGN_OR_RETURN(
              const at::Tensor value,
              loss(microbatch, item.inputs.Logprobs(hidden, leaves[2], temperature, entropy,
                                                    may_add ? lm_head_sums : at::Tensor())));
          const std::vector<at::Tensor> computed = GradientsOf(value, leaves, {});
          item.gradient = computed[0];
          return std::vector<at::Tensor>{computed[1], computed[2]};
        },
        {ViewBlock(parts_.layout.norm, sums, begin), lm_head_sums});
    exchange.Reduce(LastBlock(), sums, gradients);
  }
  for (size_t layer = parts_.layout.layers.size(); layer-- > 0;) {
    FRESHET_RETURN_IF_ERROR(LayerBackward(exchange, layer, gradients));
  }
  const at::Tensor sums = EmbeddingSums();
  if (tied()) sums.add_(head_sums);
  exchange.Reduce(0, sums, gradients);
  return exchange.Finish(parts_.on_wait);
}

absl::Status BlockwisePass::LayerBackward(BlockExchange& exchange, size_t layer,
                                          const at::Tensor& gradients) {
  const size_t block = layer + 1;
  FRESHET_ASSIGN_OR_RETURN(const at::Tensor gathered, exchange.Take(parts_.on_wait));
  const TransformerWeights::Layer weights = LayerOf(layer, gathered);
  const at::Tensor sums = EmptySums(block);
  TransformerWeights::Layer sum_views =
      ViewLayer(parts_.layout.layers[layer], sums, parts_.shards.blocks()[block].begin);
  std::vector<at::Tensor> in_order;
  ForEachTensor(sum_views, "",
                [&](const std::string&, const at::Tensor& sum) { in_order.push_back(sum); });
  AddInOrder(
      [&](Item& item, size_t, bool) -> absl::StatusOr<std::vector<at::Tensor>> {
        std::vector<at::Tensor> leaves = {Leaf(item.x.back())};
        item.x.pop_back();
        TransformerWeights::Layer given = weights;
        ForEachTensor(given, "", [&](const std::string&, at::Tensor& tensor) {
          tensor = Leaf(tensor);
          leaves.push_back(tensor);
        });
        const at::Tensor out = parts_.model.ApplyLayer(
            given, static_cast<int64_t>(layer), leaves[0], item.inputs.positions(), item.attention);
        std::vector<at::Tensor> computed = GradientsOf(out, leaves, {item.gradient});
        item.gradient = computed[0];
        computed.erase(computed.begin());
        return computed;
      },
      in_order);
  exchange.Reduce(block, sums, gradients);
  return absl::OkStatus();
}

at::Tensor BlockwisePass::EmbeddingSums() {
  const at::Tensor sums = EmptySums(0);
  const at::Tensor sum = ViewBlock(parts_.layout.embed, sums, 0);
  AddInOrder(
      [&](Item& item, size_t, bool) -> absl::StatusOr<std::vector<at::Tensor>> {
        // The gradient does not depend on the values.
        const at::Tensor leaf =
            Leaf(at::empty({1}, sum.options().dtype(type_)).expand({sum.size(0), sum.size(1)}));
        const at::Tensor x = Embed(leaf, item.inputs.token_ids());
        return GradientsOf(x, {leaf}, {std::exchange(item.gradient, {})});
      },
      {sum});
  return sums;
}

}  // namespace freshet
