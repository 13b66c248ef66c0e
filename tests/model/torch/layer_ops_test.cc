#include "model/layer_ops.h"

#include <cmath>
#include <functional>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using torch::autograd::Variable;

at::Tensor Random(at::IntArrayRef shape, uint64_t seed) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  float* data = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    data[i] = static_cast<float>(2.0 * ToUniform(RandomBits(seed, static_cast<uint64_t>(i))) - 1.0);
  }
  return tensor;
}
double MaxDifference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// Gradients of sum(out * weights) with respect to `inputs`.
std::vector<at::Tensor> Gradients(const at::Tensor& out, const std::vector<at::Tensor>& inputs) {
  const at::Tensor weights = Random(out.sizes(), 99);
  return torch::autograd::grad({(out * weights).sum()}, inputs);
}

TEST(Embed, AddsGradientsOfEqualTokensInFp32) {
  const at::Tensor weight = Random({7, 3}, 1).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor ids = at::full({1000}, 5, at::kLong);
  const at::Tensor rows = Embed(weight, ids);
  EXPECT_EQ(rows.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(rows[999], weight[5].to(at::kFloat)));
  const at::Tensor gradient = torch::autograd::grad({rows.sum()}, {weight})[0];
  EXPECT_EQ(gradient[5][0].item<float>(), 1000.0F) << "a sum in bf16 would end at 256";
  EXPECT_EQ(gradient.abs().sum(1).count_nonzero().item<int64_t>(), 1);
}

TEST(RmsNorm, EqualsAtenInValueAndGradient) {
  for (const int64_t rows : {1, 3, 16, 33}) {
    for (const int64_t width : {1, 7, 8, 64, 173}) {
      const at::Tensor x = Random({rows, width}, 1).mul_(3.0).set_requires_grad(true);
      const at::Tensor weight = Random({width}, 2).set_requires_grad(true);
      const at::Tensor ours = RmsNorm(x, weight, 1e-5);
      const at::Tensor composite = AtenRmsNorm(x, weight, 1e-5);
      EXPECT_LT(MaxDifference(ours, composite), 1e-5) << rows << "x" << width;
      const auto our_gradients = Gradients(ours, {x, weight});
      const auto gradients = Gradients(composite, {x, weight});
      EXPECT_LT(MaxDifference(our_gradients[0], gradients[0]), 2e-4) << rows << "x" << width;
      EXPECT_LT(MaxDifference(our_gradients[1], gradients[1]), 2e-4) << rows << "x" << width;
    }
  }
}

TEST(RmsNorm, GradientEqualsFiniteDifferences) {
  const int64_t width = 12;
  const at::Tensor x = Random({2, width}, 3).set_requires_grad(true);
  const at::Tensor weight = Random({width}, 4).set_requires_grad(true);
  const auto gradients = Gradients(RmsNorm(x, weight, 1e-5), {x, weight});
  const at::Tensor loss_weights = Random({2, width}, 99).to(at::kDouble);
  const auto loss = [&](const at::Tensor& at_x, const at::Tensor& at_weight) {
    return (AtenRmsNorm(at_x, at_weight, 1e-5) * loss_weights).sum().item<double>();
  };
  constexpr double kStep = 1e-6;
  const at::Tensor xd = x.detach().to(at::kDouble);
  const at::Tensor wd = weight.detach().to(at::kDouble);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const at::Tensor delta = at::zeros({x.numel()}, at::kDouble);
    delta[i] = kStep;
    const at::Tensor step = delta.view_as(xd);
    const double slope = (loss(xd + step, wd) - loss(xd - step, wd)) / (2 * kStep);
    EXPECT_NEAR(gradients[0].flatten()[i].item<double>(), slope, 1e-4);
  }
  for (int64_t i = 0; i < width; ++i) {
    const at::Tensor delta = at::zeros({width}, at::kDouble);
    delta[i] = kStep;
    const double slope = (loss(xd, wd + delta) - loss(xd, wd - delta)) / (2 * kStep);
    EXPECT_NEAR(gradients[1][i].item<double>(), slope, 1e-4);
  }
}

TEST(RmsNorm, TakesStridedInputsAndGradients) {
  const at::Tensor wide = Random({5, 40}, 5);
  const at::Tensor x = wide.narrow(1, 3, 20).detach().set_requires_grad(true);
  const at::Tensor weight = Random({20}, 6).set_requires_grad(true);
  EXPECT_LT(MaxDifference(RmsNorm(x, weight, 1e-6), AtenRmsNorm(x, weight, 1e-6)), 1e-5);
  // sum() produces an expanded gradient.
  const auto ours = torch::autograd::grad({RmsNorm(x, weight, 1e-6).sum()}, {x, weight});
  const auto expected = torch::autograd::grad({AtenRmsNorm(x, weight, 1e-6).sum()}, {x, weight});
  EXPECT_LT(MaxDifference(ours[0], expected[0]), 1e-4);
  EXPECT_LT(MaxDifference(ours[1], expected[1]), 1e-4);
}

TEST(RmsNorm, TreatsEveryRowAlikeWhateverTheNumberOfRows) {
  const at::Tensor x = Random({40, 64}, 7);
  const at::Tensor weight = Random({64}, 8);
  const at::Tensor all = RmsNorm(x, weight, 1e-5);
  for (const int64_t row : {0, 17, 39}) {
    EXPECT_TRUE(at::equal(all.narrow(0, row, 1), RmsNorm(x.narrow(0, row, 1), weight, 1e-5)));
  }
}

TEST(RmsNorm, ARowOfZerosStaysFinite) {
  const at::Tensor x = at::zeros({1, 8}).set_requires_grad(true);
  const at::Tensor weight = at::ones({8}).set_requires_grad(true);
  const auto gradients = Gradients(RmsNorm(x, weight, 1e-5), {x, weight});
  EXPECT_TRUE(gradients[0].isfinite().all().item<bool>());
}

struct Tables {
  explicit Tables(int64_t half) {
    const at::Tensor angles = Random({50, half}, 11).mul_(3.0);
    cos = at::cos(angles);
    sin = at::sin(angles);
  }
  at::Tensor cos, sin;
};

at::Tensor Positions() { return at::tensor({0, 49, 3, 3, 17}, at::kLong); }

TEST(Rope, EqualsAtenInValueAndGradient) {
  for (const int64_t half : {1, 4, 16}) {
    const Tables tables(half);
    const at::Tensor x = Random({5, 3, 2 * half}, 12).set_requires_grad(true);
    const at::Tensor ours = Rope(x, tables.cos, tables.sin, Positions());
    const at::Tensor composite = AtenRope(x, tables.cos, tables.sin, Positions());
    EXPECT_LT(MaxDifference(ours, composite), 1e-6);
    EXPECT_LT(MaxDifference(Gradients(ours, {x})[0], Gradients(composite, {x})[0]), 1e-6);
  }
}

TEST(Rope, TakesViewsAndExpandedGradients) {
  const Tables tables(4);
  const at::Tensor fused = Random({5, 7, 8}, 13);
  for (const at::Tensor& view :
       {fused.narrow(1, 2, 3), fused.transpose(0, 1).narrow(1, 0, 5).transpose(0, 1)}) {
    const at::Tensor x = view.detach().set_requires_grad(true);
    const at::Tensor ours = Rope(x, tables.cos, tables.sin, Positions());
    const at::Tensor composite = AtenRope(x, tables.cos, tables.sin, Positions());
    EXPECT_LT(MaxDifference(ours, composite), 1e-6);
    const auto our_gradient = torch::autograd::grad({ours.sum()}, {x});
    const auto gradient = torch::autograd::grad({composite.sum()}, {x});
    EXPECT_LT(MaxDifference(our_gradient[0], gradient[0]), 1e-6);
  }
}

TEST(Rope, KeepsLengths) {
  const Tables tables(8);
  const at::Tensor x = Random({5, 2, 16}, 14);
  const at::Tensor y = Rope(x, tables.cos, tables.sin, Positions());
  EXPECT_LT(MaxDifference(x.norm(2, {2}), y.norm(2, {2})), 1e-5);
}

TEST(SwiGlu, EqualsAtenInValueAndGradient) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const double tolerance = type == at::kFloat ? 1e-6 : 0.05;
    for (const int64_t inner : {1, 16, 45}) {
      const at::Tensor x = Random({3, 2 * inner}, 1).mul_(6.0).to(type).set_requires_grad(true);
      const at::Tensor ours = SwiGlu(x);
      EXPECT_EQ(ours.scalar_type(), type);
      EXPECT_LT(MaxDifference(ours, AtenSwiGlu(x)), tolerance);
      EXPECT_LT(MaxDifference(Gradients(ours, {x})[0], Gradients(AtenSwiGlu(x), {x})[0]),
                tolerance);
    }
  }
}

}  // namespace
}  // namespace freshet
