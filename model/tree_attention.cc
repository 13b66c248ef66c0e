#include "model/tree_attention.h"

#include <limits>
#include <numeric>
#include <utility>

#include "model/kernels/sequence_attention.h"

namespace freshet {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::tensor_list;

using Trees = std::vector<PackedTree>;

// Rows of the stream.
struct Rows {
  int64_t begin = 0;
  int64_t count = 0;
};

// Calls `visit(queries, prefix)` for all sequences: a prefix, without one, and its suffixes.
template <typename Visit>
void ForEachSequence(const Trees& trees, const Visit& visit) {
  for (const PackedTree& tree : trees) {
    const Rows prefix{tree.begin, tree.prefix};
    visit(prefix, Rows{});
    int64_t begin = tree.begin + tree.prefix;
    for (const int64_t count : tree.suffixes) {
      if (count > 0) visit(Rows{begin, count}, prefix);
      begin += count;
    }
  }
}

// A token's heads adjacent, and no gaps within them.
at::Tensor Usable(const at::Tensor& x) {
  const bool usable = x.stride(2) == 1 && x.stride(1) == x.size(2);
  return usable ? x : x.contiguous();
}

AttentionInputs InputsOf(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return {q.const_data_ptr<float>(),
          k.const_data_ptr<float>(),
          v.const_data_ptr<float>(),
          q.stride(0),
          k.stride(0),
          v.stride(0),
          q.size(1),
          k.size(1),
          q.size(2)};
}

// With the kernels of sequence_attention.h.
class TreeFunction : public Function<TreeFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const std::shared_ptr<const Trees>& trees,
                            int64_t window, const at::Tensor& given_q, const at::Tensor& given_k,
                            const at::Tensor& given_v) {
    const at::Tensor q = Usable(given_q);
    const at::Tensor k = Usable(given_k);
    const at::Tensor v = Usable(given_v);
    const at::Tensor out = at::empty({q.size(0), q.size(1) * q.size(2)}, q.options());
    const at::Tensor totals = at::empty({q.size(0), q.size(1)}, q.options());
    const AttentionOutputs outputs{out.mutable_data_ptr<float>(), totals.mutable_data_ptr<float>()};
    std::vector<float> scratch;
    ForEachSequence(*trees, [&](const Rows& queries, const Rows& prefix) {
      AttendSequence(InputsOf(q, k, v),
                     {queries.begin, queries.count, prefix.begin, prefix.count, window}, outputs,
                     scratch);
    });
    ctx->saved_data["trees"] = at::IValue::make_capsule(c10::make_intrusive<Holder>(trees));
    ctx->saved_data["window"] = window;
    ctx->save_for_backward({q, k, v, out, totals});
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto capsule = ctx->saved_data["trees"].toCapsule();
    const Trees& trees = *static_cast<const Holder&>(*capsule).trees;
    const int64_t window = ctx->saved_data["window"].toInt();
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& q = saved[0];
    const at::Tensor& k = saved[1];
    const at::Tensor& v = saved[2];
    const at::Tensor d = grads[0].contiguous();
    const at::Tensor dq = at::empty(q.sizes(), q.options());
    const at::Tensor dk = at::zeros(k.sizes(), k.options());
    const at::Tensor dv = at::zeros(v.sizes(), v.options());
    const AttentionOutputs outputs{saved[3].mutable_data_ptr<float>(),
                                   saved[4].mutable_data_ptr<float>()};
    const AttentionGradients gradients{d.const_data_ptr<float>(), dq.mutable_data_ptr<float>(),
                                       dk.mutable_data_ptr<float>(), dv.mutable_data_ptr<float>()};
    std::vector<float> scratch;
    ForEachSequence(trees, [&](const Rows& queries, const Rows& prefix) {
      AttendSequenceGradient(InputsOf(q, k, v),
                             {queries.begin, queries.count, prefix.begin, prefix.count, window},
                             outputs, gradients, scratch);
    });
    return {at::Tensor(), at::Tensor(), dq, dk, dv};
  }

 private:
  struct Holder : torch::CustomClassHolder {
    explicit Holder(std::shared_ptr<const Trees> given) : trees(std::move(given)) {}
    std::shared_ptr<const Trees> trees;
  };
};

// Additive mask of queries that are the last of `keys` tokens: -inf for later tokens and for those
// before the window.
at::Tensor MaskOf(int64_t queries, int64_t keys, int64_t window, const at::Tensor& like) {
  const at::Tensor position = at::arange(keys - queries, keys, at::kLong).unsqueeze(1);
  const at::Tensor key = at::arange(keys, at::kLong).unsqueeze(0);
  at::Tensor hidden = key > position;
  if (window > 0) hidden = hidden.logical_or(key <= position - window);
  return at::zeros({queries, keys}, at::kFloat)
      .masked_fill_(hidden, -std::numeric_limits<float>::infinity())
      .to(like.device(), like.scalar_type());
}

std::vector<VarlenSequence> SequencesOf(const Trees& trees) {
  std::vector<VarlenSequence> sequences;
  ForEachSequence(trees, [&](const Rows& queries, const Rows& prefix) {
    VarlenSequence& sequence = sequences.emplace_back();
    sequence.queries = queries.count;
    for (const Rows& rows : {prefix, queries}) {
      for (int64_t row = rows.begin; row < rows.begin + rows.count; ++row) {
        sequence.keys.push_back(row);
      }
    }
  });
  return sequences;
}

}  // namespace

TreeAttention::TreeAttention(std::vector<PackedTree> trees, at::Device device, at::ScalarType type)
    : trees_(std::make_shared<const Trees>(std::move(trees))) {
  if (device.is_cpu()) return;
  int64_t rows = 0;
  for (const PackedTree& tree : *trees_) {
    rows += tree.prefix + std::accumulate(tree.suffixes.begin(), tree.suffixes.end(), int64_t{0});
  }
  varlen_.emplace(SequencesOf(*trees_), rows, device, type, /*differentiable=*/true);
}

at::Tensor TreeAttention::Attend(int64_t window, const at::Tensor& q, const at::Tensor& k,
                                 const at::Tensor& v) const {
  if (!varlen_.has_value()) return TreeFunction::apply(trees_, window, q, k, v);
  if (!varlen_->Supports(q.size(2), window)) return AtenTreeAttention(*trees_, window, q, k, v);
  return varlen_->Attend(window, q, k, v).to(q.scalar_type());
}

at::Tensor AtenTreeAttention(const std::vector<PackedTree>& trees, int64_t window,
                             const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  std::vector<at::Tensor> results;
  ForEachSequence(trees, [&](const Rows& queries, const Rows& prefix) {
    // [1, heads, rows, D]
    const auto rows_of = [](const at::Tensor& x, const Rows& rows) {
      return x.narrow(0, rows.begin, rows.count).transpose(0, 1).unsqueeze(0);
    };
    const auto keys_of = [&](const at::Tensor& x) {
      return at::cat({rows_of(x, prefix), rows_of(x, queries)}, 2);
    };
    const at::Tensor mask = MaskOf(queries.count, prefix.count + queries.count, window, q);
    results.push_back(at::scaled_dot_product_attention(
                          rows_of(q, queries), keys_of(k), keys_of(v), mask, /*dropout_p=*/0.0,
                          /*is_causal=*/false, /*scale=*/{}, /*enable_gqa=*/q.size(1) != k.size(1))
                          .squeeze(0)
                          .transpose(0, 1)
                          .reshape({queries.count, -1}));
  });
  return at::cat(results, 0);
}

}  // namespace freshet
