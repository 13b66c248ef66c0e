#include "trainer/learner/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/str_cat.h"
#include "model/dtype.h"
#include "tests/testing/test_device.h"
#include "trainer/learner/aten_adamw.h"

namespace freshet {
namespace {

using ::testing::HasSubstr;

std::vector<float> Floats(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), tensor.const_data_ptr<float>() + tensor.numel()};
}

AdamW Make(const std::vector<ParameterRange>& ranges, int64_t size, const AdamWOptions& options) {
  auto optimizer = AdamW::Create(ranges, size, options);
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  return *std::move(optimizer);
}

// A gradient that differs between elements and steps.
float GradientAt(size_t element, int step) {
  return std::sin(static_cast<float>(element) * 1.7f + static_cast<float>(step) * 0.9f) * 2.0f;
}

at::Tensor GradientsAt(int64_t size, int step) {
  at::Tensor gradients = at::empty({size}, at::kFloat);
  float* numbers = gradients.mutable_data_ptr<float>();
  for (int64_t i = 0; i < size; ++i) numbers[i] = GradientAt(static_cast<size_t>(i), step);
  return gradients;
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

class AdamWTest : public testing::Test {
 protected:
  absl::Status Step(AdamW& optimizer, const at::Tensor& values, const at::Tensor& gradients,
                    double learning_rate = 0.05) {
    return optimizer.Step(learning_rate, gradients, values, {}, pool_).status();
  }

  // A matrix of 20 elements with decay, a gap, and a vector of 3 without, over 25 steps.
  void CompareWithScalar(const AdamWOptions& options) {
    constexpr int64_t kSize = 25;
    const auto in_gap = [](size_t i) { return i >= 20 && i < 22; };
    AdamW optimizer = Make({{"w", 0, 20, true}, {"norm", 22, 3, false}}, kSize, options);
    const at::Tensor values = at::linspace(-1, 2, kSize);
    const at::Tensor rounded = at::zeros({kSize}, at::kBFloat16);
    std::vector<ScalarAdamW> expected;
    for (const float p : Floats(values)) expected.push_back({p});
    for (int t = 1; t <= 25; ++t) {
      const at::Tensor gradients = GradientsAt(kSize, t);
      double squares = 0;
      for (size_t i = 0; i < kSize; ++i) {
        if (!in_gap(i)) squares += std::pow(static_cast<double>(GradientAt(i, t)), 2);
      }
      const double lr = 0.01 * t;
      const double total = std::sqrt(squares);
      const double scale = options.grad_clip_norm > 0 && total > options.grad_clip_norm
                               ? options.grad_clip_norm / total
                               : 1.0;
      for (size_t i = 0; i < kSize; ++i) {
        if (in_gap(i)) continue;
        expected[i].Step(GradientAt(i, t) * scale, t, lr, i < 20 ? options.weight_decay : 0,
                         options);
      }
      const auto report = optimizer.Step(lr, gradients, values, rounded, pool_);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_NEAR(report->grad_norm, total, 1e-5);
      EXPECT_NEAR(report->clip_scale, scale, 1e-6);
      EXPECT_EQ(optimizer.step(), t);
    }
    const std::vector<float> result = Floats(values);
    const auto* bits = static_cast<const uint16_t*>(rounded.const_data_ptr());
    for (size_t i = 0; i < kSize; ++i) {
      EXPECT_NEAR(result[i], expected[i].p, 2e-5) << "element " << i;
      EXPECT_EQ(bits[i], in_gap(i) ? 0 : RoundToBf16(result[i])) << "element " << i;
    }
  }

  ThreadPool pool_{2};
};

TEST_F(AdamWTest, AgreesWithAScalarOneInDouble) {
  AdamWOptions options;
  options.grad_clip_norm = 0;
  CompareWithScalar(options);
}

TEST_F(AdamWTest, DecaysWhatDecays) {
  AdamWOptions options;
  options.weight_decay = 0.1;
  options.beta2 = 0.95;
  options.grad_clip_norm = 0;
  CompareWithScalar(options);
}

TEST_F(AdamWTest, ClipsByTheGlobalNorm) {
  AdamWOptions options;
  options.weight_decay = 0.05;
  options.epsilon = 0.1;  // large, so that the gradient's scale matters
  options.grad_clip_norm = 0.5;
  CompareWithScalar(options);
}

TEST_F(AdamWTest, GradNormIsTheL2NormOfAll) {
  const AdamW optimizer = Make({{"a", 0, 2, false}, {"b", 2, 1, true}}, 3, {});
  EXPECT_EQ(*optimizer.GradNorm(at::zeros({3}), pool_), 0);
  EXPECT_NEAR(*optimizer.GradNorm(at::tensor({2.0F, 3.0F, 6.0F}), pool_), 7, 1e-6);
  EXPECT_NEAR(*optimizer.GradNorm(at::tensor({2.0F, 3.0F, 3e30F}), pool_) / 3e30, 1, 1e-6);
}

// On the device that FRESHET_TEST_DEVICE names.
TEST_F(AdamWTest, AtenComputesTheSame) {
  constexpr int64_t kSize = 300001;
  const std::vector<ParameterRange> ranges = {{"a", 0, 200000, true}, {"b", 200000, 100001, false}};
  AdamWOptions options;
  options.weight_decay = 0.05;
  options.grad_clip_norm = 0.5;
  AdamW optimizer = Make(ranges, kSize, options);
  const at::Tensor values = at::linspace(-1, 1, kSize);
  const at::Tensor rounded = at::zeros({kSize}, at::kBFloat16);
  const at::Device device = TestDevice();
  const auto on_device = [&](const at::Tensor& tensor) { return tensor.to(device).clone(); };
  const AdamWTensors others = {on_device(values),
                               {},
                               on_device(at::zeros({kSize})),
                               on_device(at::zeros({kSize})),
                               on_device(rounded)};
  for (int64_t step = 1; step <= 3; ++step) {
    const at::Tensor gradients = GradientsAt(kSize, static_cast<int>(step));
    AdamWTensors theirs = others;
    theirs.gradients = on_device(gradients);
    const auto report = optimizer.Step(0.01, gradients, values, rounded, pool_);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_NEAR(AtenNorm(theirs.gradients) / report->grad_norm, 1, 1e-7);
    AtenAdamWUpdate(options, ranges, step, 0.01, report->clip_scale, theirs);
    const at::Tensor difference = others.values.to(at::kCPU) - values;
    EXPECT_LT(difference.abs().max().item<double>(), 1e-6) << "step " << step;
    EXPECT_TRUE(at::equal(others.rounded, others.values.to(at::kBFloat16)));
  }
}

TEST_F(AdamWTest, AtenSumsTheSquaresOfEachRange) {
  const at::Tensor flat = at::tensor({2.0F, 3.0F, 6.0F, -1.0F, 3e30F}).to(TestDevice());
  EXPECT_THAT(AtenSquares(flat, {{"a", 0, 2, false}, {"b", 3, 1, true}, {"c", 2, 1, true}}),
              testing::ElementsAre(testing::DoubleNear(13, 1e-12), 1, 36));
  const std::vector<double> large = AtenSquares(flat, {{"a", 4, 1, false}});
  EXPECT_NEAR(large.at(0) / 9e60, 1, 1e-6);
  EXPECT_THAT(AtenSquares(flat, {}), testing::IsEmpty());
}

TEST_F(AdamWTest, ResultsDoNotDependOnTheNumberOfThreads) {
  constexpr int64_t kSize = 300001;  // several pieces
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    AdamW optimizer = Make({{"a", 0, kSize, true}}, kSize, {});
    const at::Tensor values = at::linspace(-1, 1, kSize);
    const auto report = optimizer.Step(0.1, GradientsAt(kSize, 1), values, {}, pool);
    ASSERT_TRUE(report.ok()) << report.status();
    results.push_back(Floats(values));
    results.back().push_back(static_cast<float>(report->grad_norm));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(AdamWTest, NonFiniteGradientIsNamedAndChangesNothing) {
  AdamW optimizer = Make({{"good", 0, 1, true}, {"layers.0.bad", 1, 2, true}}, 3, {});
  const at::Tensor values = at::tensor({1.0F, 2.0F, 3.0F});
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const absl::Status status = Step(optimizer, values, at::tensor({5.0F, 1.0F, value}));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(status), HasSubstr("gradient of layers.0.bad is not finite"));
    EXPECT_EQ(Floats(values), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(optimizer.step(), 0);
    EXPECT_EQ(Floats(optimizer.GetState().exp_avg), (std::vector<float>{0, 0, 0}));
  }
}

TEST_F(AdamWTest, RefusesABadLearningRate) {
  AdamW optimizer = Make({{"a", 0, 1, true}}, 1, {});
  for (const double rate :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(Step(optimizer, at::ones({1}), at::ones({1}), rate).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(optimizer.step(), 0);
}

TEST_F(AdamWTest, ContinuesFromACopyOfItsStateBitForBit) {
  const auto steps = [&](AdamW& optimizer, const at::Tensor& values, int from, int to) {
    for (int t = from; t < to; ++t) {
      ASSERT_TRUE(Step(optimizer, values, GradientsAt(2, t)).ok());
    }
  };
  const at::Tensor whole = at::tensor({1.0F, -1.0F});
  AdamW straight = Make({{"p", 0, 2, true}}, 2, {});
  steps(straight, whole, 0, 10);

  const at::Tensor parts = at::tensor({1.0F, -1.0F});
  AdamW before = Make({{"p", 0, 2, true}}, 2, {});
  steps(before, parts, 0, 4);
  AdamW after = Make({{"p", 0, 2, true}}, 2, {});
  ASSERT_TRUE(after.SetState(before.GetState()).ok());
  EXPECT_EQ(after.step(), 4);
  const std::vector<float> moments = Floats(before.GetState().exp_avg);
  steps(after, parts, 4, 10);
  EXPECT_EQ(Floats(parts), Floats(whole));
  EXPECT_EQ(Floats(before.GetState().exp_avg), moments);
}

TEST_F(AdamWTest, SetStateRefusesWhatDoesNotFit) {
  AdamW optimizer = Make({{"p", 0, 2, true}}, 2, {});
  const AdamWState good{3, at::ones({2}), at::ones({2})};
  const auto refuses = [&](const AdamWState& state, const char* message) {
    EXPECT_THAT(Message(optimizer.SetState(state)), HasSubstr(message));
    EXPECT_EQ(optimizer.step(), 0);
    EXPECT_EQ(Floats(optimizer.GetState().exp_avg), (std::vector<float>{0, 0}));
  };
  AdamWState state = good;
  state.step = -1;
  refuses(state, "step -1 is negative");
  state = good;
  state.exp_avg = at::ones({3});
  refuses(state, "exp_avg must be fp32 with 2 elements");
  state = good;
  state.exp_avg_sq = at::ones({2}, at::kDouble);
  refuses(state, "exp_avg_sq must be fp32");
  state = good;
  state.exp_avg = at::full({2}, std::nan(""));
  refuses(state, "exp_avg is not finite");
  state = good;
  state.exp_avg_sq = at::full({2}, -1.0);
  refuses(state, "exp_avg_sq is negative");
}

TEST_F(AdamWTest, CreateRefusesBadOptions) {
  const auto refuses = [](const AdamWOptions& options, const char* message) {
    const absl::Status status = AdamW::Create({{"p", 0, 1, true}}, 1, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr(message));
  };
  AdamWOptions options;
  options.beta1 = 1;
  refuses(options, "beta1 1 is outside [0, 1)");
  options = {};
  options.epsilon = 0;
  refuses(options, "epsilon 0 is outside (0, 1]");
  options = {};
  options.weight_decay = -1;
  refuses(options, "weight decay -1 is outside");
  options = {};
  options.grad_clip_norm = std::nan("");
  refuses(options, "grad_clip_norm nan");
}

}  // namespace
}  // namespace freshet
