#include "model/tree_attention.h"

#include <memory>

#include "gtest/gtest.h"

namespace freshet {
namespace {

struct Heads {
  int64_t heads, kv_heads, dim;
};

class TreeAttentionTest : public testing::TestWithParam<Heads> {};

// Sequences shorter and longer than a block of queries, with and without suffixes.
std::shared_ptr<const std::vector<PackedTree>> Trees() {
  return std::make_shared<const std::vector<PackedTree>>(
      std::vector<PackedTree>{{0, 5, {}}, {5, 40, {3, 0, 70, 1}}, {119, 1, {33}}});
}
constexpr int64_t kTokens = 153;

TEST_P(TreeAttentionTest, EqualsAtenInValueAndGradient) {
  const auto [heads, kv_heads, dim] = GetParam();
  at::manual_seed(5);
  // As the model has them: queries and keys are views of one tensor.
  const at::Tensor qk = at::randn({kTokens, heads + kv_heads, dim}).set_requires_grad(true);
  const at::Tensor v = at::randn({kTokens, kv_heads, dim}).set_requires_grad(true);
  const at::Tensor weights = at::randn({kTokens, heads * dim});
  for (const int64_t window : {0, 1, 20, 64, 1000}) {
    SCOPED_TRACE(window);
    const at::Tensor k = qk.narrow(1, heads, kv_heads);
    const at::Tensor ours = TreeAttention(Trees(), window, qk.narrow(1, 0, heads), k, v);
    const at::Tensor expected = AtenTreeAttention(*Trees(), window, qk.narrow(1, 0, heads), k, v);
    EXPECT_LT((ours - expected).abs().max().item<double>(), 1e-5);
    const auto gradients = torch::autograd::grad({(ours * weights).sum()}, {qk, v});
    const auto others = torch::autograd::grad({(expected * weights).sum()}, {qk, v});
    for (size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_LT((gradients[i] - others[i]).abs().max().item<double>(),
                1e-5 * others[i].abs().max().item<double>() + 1e-5);
    }
  }
}

TEST_P(TreeAttentionTest, ASequencesResultDoesNotDependOnTheOthers) {
  const auto [heads, kv_heads, dim] = GetParam();
  at::manual_seed(6);
  const at::Tensor q = at::randn({kTokens, heads, dim});
  const at::Tensor k = at::randn({kTokens, kv_heads, dim});
  const at::Tensor v = at::randn({kTokens, kv_heads, dim});
  const at::Tensor all = TreeAttention(Trees(), 0, q, k, v);
  const auto last =
      std::make_shared<const std::vector<PackedTree>>(std::vector<PackedTree>{{0, 1, {33}}});
  const auto rows = [](const at::Tensor& x) { return x.narrow(0, 119, 34); };
  EXPECT_TRUE(at::equal(TreeAttention(last, 0, rows(q), rows(k), rows(v)), rows(all)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, TreeAttentionTest,
                         testing::Values(Heads{1, 1, 2}, Heads{4, 2, 16}, Heads{6, 1, 40},
                                         Heads{3, 3, 64}, Heads{2, 1, 128}),
                         [](const auto& tested) {
                           return std::to_string(tested.param.heads) + "Of" +
                                  std::to_string(tested.param.dim);
                         });

}  // namespace
}  // namespace freshet
