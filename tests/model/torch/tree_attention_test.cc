#include "model/tree_attention.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/test_device.h"

namespace freshet {
namespace {

struct Heads {
  int64_t heads, kv_heads, dim;
};

class TreeAttentionTest : public testing::TestWithParam<Heads> {};

// Sequences shorter and longer than a block of queries, with and without suffixes.
std::vector<PackedTree> Trees() { return {{0, 5, {}}, {5, 40, {3, 0, 70, 1}}, {119, 1, {33}}}; }
at::Tensor Attend(const std::vector<PackedTree>& trees, int64_t window, const at::Tensor& q,
                  const at::Tensor& k, const at::Tensor& v) {
  return TreeAttention(trees, at::kCPU, at::kFloat).Attend(window, q, k, v);
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
    const at::Tensor ours = Attend(Trees(), window, qk.narrow(1, 0, heads), k, v);
    const at::Tensor expected = AtenTreeAttention(Trees(), window, qk.narrow(1, 0, heads), k, v);
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
  const at::Tensor all = Attend(Trees(), 0, q, k, v);
  const std::vector<PackedTree> last = {{0, 1, {33}}};
  const auto rows = [](const at::Tensor& x) { return x.narrow(0, 119, 34); };
  EXPECT_TRUE(at::equal(Attend(last, 0, rows(q), rows(k), rows(v)), rows(all)));
}

// On the device that FRESHET_TEST_DEVICE names, against the CPU.
TEST_P(TreeAttentionTest, OtherDevicesEqualTheCpu) {
  if (TestsOnCpu()) GTEST_SKIP() << "set FRESHET_TEST_DEVICE to another device";
  const auto [heads, kv_heads, dim] = GetParam();
  const at::Device device = TestDevice();
  at::manual_seed(7);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const double bound = type == at::kFloat ? 1e-5 : 2e-2;
    const auto numbers = [type](at::IntArrayRef shape) {
      return at::randn(shape).to(type).to(at::kFloat);
    };
    const std::vector<at::Tensor> inputs = {numbers({kTokens, heads, dim}),
                                            numbers({kTokens, kv_heads, dim}),
                                            numbers({kTokens, kv_heads, dim})};
    const at::Tensor weights = numbers({kTokens, heads * dim});
    for (const int64_t window : {0, 20}) {
      SCOPED_TRACE(window);
      std::vector<at::Tensor> results[2];
      for (const bool on_device : {false, true}) {
        const at::Device place = on_device ? device : at::Device(at::kCPU);
        std::vector<at::Tensor> leaves;
        for (const at::Tensor& input : inputs) {
          leaves.push_back(input.to(place).clone().set_requires_grad(true));
        }
        const at::Tensor out =
            TreeAttention(Trees(), place, type).Attend(window, leaves[0], leaves[1], leaves[2]);
        results[on_device] = torch::autograd::grad({(out * weights.to(place)).sum()}, leaves);
        results[on_device].push_back(out.detach());
      }
      for (size_t i = 0; i < results[0].size(); ++i) {
        const at::Tensor difference = results[0][i] - results[1][i].to(at::kCPU);
        EXPECT_LT(difference.norm().item<double>(), bound * results[0][i].norm().item<double>())
            << "tensor " << i << ", " << type;
      }
    }
  }
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
