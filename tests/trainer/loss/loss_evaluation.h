#ifndef FRESHET_TESTS_TRAINER_LOSS_LOSS_EVALUATION_H_
#define FRESHET_TESTS_TRAINER_LOSS_LOSS_EVALUATION_H_

#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/loss/loss.h"

namespace freshet {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

inline at::Tensor Doubles(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble);
}

inline std::vector<double> Values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

inline LossSpec Preset(const char* name) { return *ExpandPreset(name); }

// A loss and its gradient by log-prob.
struct Evaluation {
  LossOutput out;
  std::vector<double> gradient;
};

inline Evaluation Evaluate(const LossSpec& spec, const LossInputs& in,
                           const LossNormalizer& normalizer) {
  auto out = PolicyLoss(spec, in, normalizer);
  if (!out.ok()) {
    ADD_FAILURE() << out.status();
    return {{}, std::vector<double>(static_cast<size_t>(in.logprobs_N.numel()), kNan)};
  }
  out->loss.backward();
  return {*out, Values(in.logprobs_N.grad())};
}

inline void ExpectNear(const std::vector<double>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], 1e-12) << "entry " << i;
  }
}

}  // namespace freshet

#endif  // FRESHET_TESTS_TRAINER_LOSS_LOSS_EVALUATION_H_
