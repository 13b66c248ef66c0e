#include "trainer/learner/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/str_cat.h"

namespace freshet {
namespace {

using ::testing::HasSubstr;

std::vector<float> Floats(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().contiguous();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

at::Tensor Leaf(const std::vector<float>& values, at::IntArrayRef shape) {
  return at::tensor(values, at::kFloat).reshape(shape).clone().set_requires_grad(true);
}

void SetGrad(const at::Tensor& parameter, const std::vector<float>& values) {
  parameter.mutable_grad() = at::tensor(values, at::kFloat).reshape(parameter.sizes()).clone();
}

AdamW Make(const std::vector<TrainedParameter>& parameters, const AdamWOptions& options) {
  auto optimizer = AdamW::Create(parameters, options);
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  return *std::move(optimizer);
}

// A gradient that differs between elements and steps.
float GradientAt(size_t element, int step) {
  return std::sin(static_cast<float>(element) * 1.7f + static_cast<float>(step) * 0.9f) * 2.0f;
}

// AdamW of one element, in double.
struct ScalarAdamW {
  double p, m = 0, v = 0;
  void Step(double g, int t, double lr, double decay, const AdamWOptions& options) {
    m = options.beta1 * m + (1 - options.beta1) * g;
    v = options.beta2 * v + (1 - options.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(options.beta1, t));
    const double v_hat = v / (1 - std::pow(options.beta2, t));
    p = p - lr * decay * p - lr * m_hat / (std::sqrt(v_hat) + options.epsilon);
  }
};

// 6 matrix elements with decay and 3 vector elements without, over 25 steps.
void CompareWithScalar(const AdamWOptions& options) {
  const std::vector<float> start{0.5f, -1.0f, 2.0f, 0.0f, 3.0f, -0.25f};
  const std::vector<float> start_norm{1.0f, 1.0f, -2.0f};
  const at::Tensor matrix = Leaf(start, {2, 3});
  const at::Tensor norm = Leaf(start_norm, {3});
  AdamW optimizer = Make({{"w", matrix}, {"norm", norm}}, options);
  std::vector<ScalarAdamW> expected;
  for (const float p : start) {
    expected.push_back({p});
  }
  for (const float p : start_norm) {
    expected.push_back({p});
  }
  for (int t = 1; t <= 25; ++t) {
    std::vector<float> grads(9);
    double squares = 0;
    for (size_t i = 0; i < grads.size(); ++i) {
      grads[i] = GradientAt(i, t);
      squares += static_cast<double>(grads[i]) * grads[i];
    }
    const double lr = 0.01 * t;
    const double total = std::sqrt(squares);
    const double scale = options.grad_clip_norm > 0 && total > options.grad_clip_norm
                             ? options.grad_clip_norm / total
                             : 1.0;
    for (size_t i = 0; i < grads.size(); ++i) {
      expected[i].Step(grads[i] * scale, t, lr, i < 6 ? options.weight_decay : 0, options);
    }
    SetGrad(matrix, {grads.begin(), grads.begin() + 6});
    SetGrad(norm, {grads.begin() + 6, grads.end()});
    const auto report = optimizer.Step(lr);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_NEAR(report->grad_norm, total, 1e-5);
    EXPECT_NEAR(report->clip_scale, scale, 1e-6);
    EXPECT_EQ(optimizer.step(), t);
  }
  const std::vector<float> w = Floats(matrix);
  const std::vector<float> n = Floats(norm);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(i < 6 ? w[i] : n[i - 6], expected[i].p, 2e-5) << "element " << i;
  }
}

TEST(AdamW, AgreesWithAScalarOneInDouble) {
  AdamWOptions options;
  options.grad_clip_norm = 0;
  CompareWithScalar(options);
}

TEST(AdamW, DecaysMatricesOnly) {
  AdamWOptions options;
  options.weight_decay = 0.1;
  options.beta2 = 0.95;
  options.grad_clip_norm = 0;
  CompareWithScalar(options);
}

TEST(AdamW, ClipsByTheGlobalNorm) {
  AdamWOptions options;
  options.weight_decay = 0.05;
  options.epsilon = 0.1;  // large, so that the gradient's scale matters
  options.grad_clip_norm = 0.5;
  CompareWithScalar(options);
}

TEST(AdamW, GradNormIsTheL2NormOfAll) {
  const at::Tensor a = Leaf({0, 0}, {2});
  const at::Tensor b = Leaf({0}, {1, 1});
  AdamW optimizer = Make({{"a", a}, {"b", b}}, {});
  EXPECT_EQ(*optimizer.GradNorm(), 0);
  SetGrad(a, {2, 3});
  SetGrad(b, {6});
  EXPECT_NEAR(*optimizer.GradNorm(), 7, 1e-6);  // sqrt(4 + 9 + 36)
  SetGrad(b, {3e30f});
  EXPECT_NEAR(*optimizer.GradNorm() / 3e30, 1, 1e-6);
  optimizer.ZeroGrad();
  EXPECT_EQ(*optimizer.GradNorm(), 0);
}

TEST(AdamW, ClippingLeavesGradientsAtTheBound) {
  const at::Tensor a = Leaf({0, 0}, {2});
  AdamW optimizer = Make({{"a", a}}, {});
  SetGrad(a, {3, 4});
  ASSERT_TRUE(optimizer.Step(0).ok());
  EXPECT_FLOAT_EQ(Floats(a.grad())[0], 0.6f);
  EXPECT_FLOAT_EQ(Floats(a.grad())[1], 0.8f);
  SetGrad(a, {0.6f, 0.0f});
  EXPECT_EQ(optimizer.Step(0)->clip_scale, 1);
}

TEST(AdamW, NonFiniteGradientIsNamedAndChangesNothing) {
  const at::Tensor good = Leaf({1}, {1});
  const at::Tensor bad = Leaf({2, 3}, {2});
  AdamW optimizer = Make({{"good", good}, {"layers.0.bad", bad}}, {});
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    SetGrad(good, {5});
    SetGrad(bad, {1, value});
    const absl::Status status = optimizer.Step(0.1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status), HasSubstr("gradient of layers.0.bad is not finite"));
    EXPECT_EQ(Floats(good), std::vector<float>{1});
    EXPECT_EQ(Floats(bad), (std::vector<float>{2, 3}));
    EXPECT_EQ(Floats(good.grad()), std::vector<float>{5});
    EXPECT_EQ(optimizer.step(), 0);
    EXPECT_EQ(Floats(optimizer.GetState().moments["good"].exp_avg), std::vector<float>{0});
  }
}

TEST(AdamW, RefusesABadLearningRate) {
  AdamW optimizer = Make({{"a", Leaf({1}, {1})}}, {});
  for (const double rate :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(optimizer.Step(rate).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(optimizer.step(), 0);
}

TEST(AdamW, ContinuesFromItsStateBitForBit) {
  const auto steps = [](AdamW& optimizer, const at::Tensor& parameter, int from, int to) {
    for (int t = from; t < to; ++t) {
      SetGrad(parameter, {GradientAt(0, t), GradientAt(1, t)});
      ASSERT_TRUE(optimizer.Step(0.05).ok());
    }
  };
  const at::Tensor whole = Leaf({1, -1}, {2});
  AdamW straight = Make({{"p", whole}}, {});
  steps(straight, whole, 0, 10);

  const at::Tensor first = Leaf({1, -1}, {2});
  AdamW before = Make({{"p", first}}, {});
  steps(before, first, 0, 4);
  AdamWState saved = before.GetState();
  saved.moments["p"] = {saved.moments["p"].exp_avg.clone(), saved.moments["p"].exp_avg_sq.clone()};
  const at::Tensor second = Leaf(Floats(first), {2});
  AdamW after = Make({{"p", second}}, {});
  ASSERT_TRUE(after.SetState(saved).ok());
  EXPECT_EQ(after.step(), 4);
  steps(after, second, 4, 10);
  EXPECT_EQ(Floats(second), Floats(whole));
}

TEST(AdamW, SetStateCopies) {
  const at::Tensor parameter = Leaf({1}, {1});
  AdamW optimizer = Make({{"p", parameter}}, {});
  AdamWState state{3, {{"p", {at::ones({1}), at::ones({1})}}}};
  ASSERT_TRUE(optimizer.SetState(state).ok());
  SetGrad(parameter, {1});
  ASSERT_TRUE(optimizer.Step(0.1).ok());
  SetGrad(parameter, {0});
  ASSERT_TRUE(optimizer.Step(0.1).ok());
  EXPECT_EQ(Floats(state.moments["p"].exp_avg), std::vector<float>{1});
}

TEST(AdamW, SetStateRefusesWhatDoesNotFit) {
  AdamW optimizer = Make({{"p", Leaf({1, 2}, {2})}}, {});
  const AdamWState good{3, {{"p", {at::ones({2}), at::ones({2})}}}};
  const auto refuses = [&](const AdamWState& state, const char* message) {
    EXPECT_THAT(Message(optimizer.SetState(state)), HasSubstr(message));
    EXPECT_EQ(optimizer.step(), 0);
    EXPECT_EQ(Floats(optimizer.GetState().moments["p"].exp_avg), (std::vector<float>{0, 0}));
  };
  AdamWState state = good;
  state.step = -1;
  refuses(state, "step -1 is outside");
  refuses({3, {}}, "has 0 parameters: the model has 1");
  refuses({3, {{"q", good.moments.at("p")}}}, "has no parameter p");
  state = good;
  state.moments["p"].exp_avg = at::ones({3});
  refuses(state, "exp_avg of p must be fp32 with the parameter's shape");
  state = good;
  state.moments["p"].exp_avg_sq = at::ones({2}, at::kDouble);
  refuses(state, "exp_avg_sq of p must be fp32");
  state = good;
  state.moments["p"].exp_avg = at::full({2}, std::nan(""));
  refuses(state, "exp_avg of p is not finite");
  state = good;
  state.moments["p"].exp_avg_sq = at::full({2}, -1.0);
  refuses(state, "exp_avg_sq of p is negative");
}

TEST(AdamW, CreateRefusesBadOptions) {
  const auto refuses = [](const std::vector<TrainedParameter>& parameters,
                          const AdamWOptions& options, const char* message) {
    const absl::Status status = AdamW::Create(parameters, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr(message));
  };
  const at::Tensor leaf = Leaf({1}, {1});
  AdamWOptions options;
  options.beta1 = 1;
  refuses({{"p", leaf}}, options, "beta1 1 is outside [0, 1)");
  options = {};
  options.epsilon = 0;
  refuses({{"p", leaf}}, options, "epsilon 0 is outside (0, 1]");
  options = {};
  options.weight_decay = -1;
  refuses({{"p", leaf}}, options, "weight decay -1 is outside");
  options = {};
  options.grad_clip_norm = std::nan("");
  refuses({{"p", leaf}}, options, "grad_clip_norm nan");
}

}  // namespace
}  // namespace freshet
