// Layer operations on the device that FRESHET_TEST_DEVICE names, against ATen on the CPU.
#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "model/layer_ops.h"
#include "tests/testing/test_device.h"

namespace freshet {
namespace {

using Inputs = std::vector<at::Tensor>;
using Operation = std::function<at::Tensor(const Inputs&)>;

// Result and gradients of the first `differentiable` inputs, in double on the CPU.
std::vector<at::Tensor> Compute(const Operation& operation, const Inputs& inputs,
                                size_t differentiable, at::Device device) {
  Inputs leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    leaves.push_back(inputs[i].to(device).clone().detach());
    if (i < differentiable) leaves.back().set_requires_grad(true);
  }
  const at::Tensor out = operation(leaves);
  at::manual_seed(9);
  const at::Tensor weights = at::randn(out.sizes()).to(device);
  std::vector<at::Tensor> results = torch::autograd::grad(
      {(out * weights).sum()},
      Inputs(leaves.begin(), leaves.begin() + static_cast<ptrdiff_t>(differentiable)));
  results.push_back(out);
  for (at::Tensor& result : results) result = result.detach().to(at::kCPU, at::kDouble);
  return results;
}

void ExpectAlike(const Operation& operation, const Operation& expected, const Inputs& inputs,
                 size_t differentiable, double bound) {
  const auto ours = Compute(operation, inputs, differentiable, TestDevice());
  const auto theirs = Compute(expected, inputs, differentiable, at::kCPU);
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_LE((ours[i] - theirs[i]).norm().item<double>(), bound * theirs[i].norm().item<double>())
        << "tensor " << i;
  }
}

constexpr double kFp32 = 1e-5;
constexpr double kBf16 = 1e-2;

TEST(DeviceOps, RmsNorm) {
  at::manual_seed(1);
  for (const int64_t width : {7, 64, 896, 5000}) {
    for (const int64_t rows : {1, 3, 700}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << width);
      const Inputs inputs = {at::randn({rows, width}).mul_(3), at::randn({width})};
      const auto of_type = [](at::ScalarType type) {
        return [type](const Inputs& x) { return RmsNorm(x[0], x[1], 1e-5, type).to(at::kFloat); };
      };
      const auto aten = [](const Inputs& x) { return AtenRmsNorm(x[0], x[1], 1e-5); };
      ExpectAlike(of_type(at::kFloat), aten, inputs, 2, kFp32);
      ExpectAlike(of_type(at::kBFloat16), aten, inputs, 2, kBf16);
    }
  }
}

TEST(DeviceOps, RotaryEmbeddingOfAView) {
  at::manual_seed(2);
  const at::Tensor positions = at::tensor({0, 49, 3, 3, 17}, at::kLong);
  for (const int64_t half : {1, 4, 64}) {
    const Inputs inputs = {at::randn({5, 7, 2 * half}), at::randn({50, half}),
                           at::randn({50, half}), positions};
    const auto ours = [](const Inputs& x) { return Rope(x[0].narrow(1, 1, 5), x[1], x[2], x[3]); };
    const auto aten = [](const Inputs& x) {
      return AtenRope(x[0].narrow(1, 1, 5), x[1], x[2], x[3]);
    };
    ExpectAlike(ours, aten, inputs, 1, kFp32);
    if (TestsOnCpu()) continue;  // fp32 only
    const auto narrow = [&](const Inputs& x) {
      Inputs typed = x;
      typed[0] = x[0].to(at::kBFloat16);
      return ours(typed).to(at::kFloat);
    };
    ExpectAlike(narrow, aten, inputs, 1, kBf16);
  }
}

TEST(DeviceOps, SwiGlu) {
  at::manual_seed(3);
  for (const int64_t inner : {1, 8, 172, 4864}) {
    const Inputs inputs = {at::randn({19, 2 * inner})};
    const auto of_type = [](at::ScalarType type) {
      return [type](const Inputs& x) { return SwiGlu(x[0].to(type)).to(at::kFloat); };
    };
    const auto aten = [](const Inputs& x) { return AtenSwiGlu(x[0]); };
    ExpectAlike(of_type(at::kFloat), aten, inputs, 1, kFp32);
    ExpectAlike(of_type(at::kBFloat16), aten, inputs, 1, kBf16);
  }
}

}  // namespace
}  // namespace freshet
