#include "model/head_logprobs.h"

#include "gtest/gtest.h"
#include "model/head_chunk.h"
#include "model/torch_threads.h"

namespace freshet {
namespace {

constexpr int64_t kVocab = 100000;
constexpr int64_t kRows = 70;  // three chunks, forwards and backwards

struct Result {
  at::Tensor logprobs, entropies, d_hidden, d_head;
};

// Gradients are those of a sum in which all log-probs and entropies have different weights.
Result Differentiate(const TargetLogprobs& out, const at::Tensor& hidden, const at::Tensor& head,
                     bool with_entropy) {
  const at::Tensor weights = at::linspace(-1, 2, out.logprobs_M.size(0));
  at::Tensor sum = (out.logprobs_M * weights).sum();
  if (with_entropy) sum = sum + (out.entropies_M * weights.flip(0)).sum();
  const auto grads = torch::autograd::grad({sum}, {hidden, head});
  return {out.logprobs_M.detach(), out.entropies_M.detach(), grads[0], grads[1]};
}

// With all logits at once.
TargetLogprobs Plain(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& rows,
                     const at::Tensor& ids, double temperature, bool entropy_gradient) {
  const at::Tensor logits =
      at::linear(hidden.to(head.scalar_type()), head).to(at::kFloat) / temperature;
  const at::Tensor logprobs = at::log_softmax(logits, -1);
  const at::Tensor source = entropy_gradient ? logprobs : logprobs.detach();
  return {logprobs.reshape({-1}).index_select(0, rows * head.size(0) + ids),
          -(source.exp() * source).sum(-1).index_select(0, rows)};
}

double Distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

class HeadLogprobsTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  HeadLogprobsTest() {
    UseOneTorchThread();
    at::manual_seed(3);
    hidden_ = at::randn({kRows, 8}).set_requires_grad(true);
    head_ = at::randn({kVocab, 8});
    // Row 40 has several targets, row 3 none.
    rows_ = at::arange(kRows);
    rows_[3] = 40;
    rows_[69] = 40;
    ids_ = at::randint(kVocab, {kRows}, at::kLong);
  }
  // In the parameter's type, as a function of fp32 weights.
  at::Tensor Head() const { return head_.to(GetParam()); }

  at::Tensor hidden_, head_, rows_, ids_;
};

TEST_P(HeadLogprobsTest, EqualsTheLogSoftmaxOfAllLogits) {
  ASSERT_LT(HeadChunkSize(kVocab, /*on_cpu=*/true), kRows / 2);
  ASSERT_LT(HeadChunkSize(kRows, /*on_cpu=*/true), kVocab / 2);
  head_.set_requires_grad(true);
  const double tolerance = GetParam() == at::kFloat ? 1e-4 : 1e-2;
  for (const Entropy entropy : {Entropy::kValue, Entropy::kDifferentiable}) {
    const bool gradient = entropy == Entropy::kDifferentiable;
    const Result chunked = Differentiate(HeadLogprobs(hidden_, Head(), rows_, ids_, 0.7, entropy),
                                         hidden_, head_, gradient);
    const Result plain =
        Differentiate(Plain(hidden_, Head(), rows_, ids_, 0.7, gradient), hidden_, head_, gradient);
    EXPECT_LT(Distance(chunked.logprobs, plain.logprobs), 2e-6);
    EXPECT_LT(Distance(chunked.entropies, plain.entropies), 1e-5);
    EXPECT_LT(Distance(chunked.d_hidden, plain.d_hidden), tolerance);
    EXPECT_LT(Distance(chunked.d_head, plain.d_head), tolerance);
  }
}

TEST_P(HeadLogprobsTest, AddsTheBitsThatAutogradAdds) {
  const at::Tensor leaf = Head().set_requires_grad(true);
  const auto gradients = [&](const at::Tensor& sum) {
    const TargetLogprobs out =
        HeadLogprobs(hidden_, leaf, rows_, ids_, 0.7, Entropy::kDifferentiable, sum);
    const at::Tensor weights = at::linspace(-1, 2, kRows);
    return torch::autograd::grad({((out.logprobs_M + out.entropies_M) * weights).sum()},
                                 {hidden_, leaf}, {}, std::nullopt, false, /*allow_unused=*/true);
  };
  const auto whole = gradients({});
  const at::Tensor before = at::randn({kVocab, 8});
  const at::Tensor sum = before.clone();
  const auto added = gradients(sum);
  EXPECT_TRUE(at::equal(added[0], whole[0]));
  EXPECT_FALSE(added[1].defined());
  EXPECT_TRUE(at::equal(sum, before + whole[1]));
}

TEST_P(HeadLogprobsTest, EntropiesHaveNoGradientUnlessTheyAreDifferentiable) {
  EXPECT_FALSE(
      HeadLogprobs(hidden_, Head(), rows_, ids_, 1.0, Entropy::kNone).entropies_M.defined());
  EXPECT_FALSE(
      HeadLogprobs(hidden_, Head(), rows_, ids_, 1.0, Entropy::kValue).entropies_M.requires_grad());
}

INSTANTIATE_TEST_SUITE_P(Types, HeadLogprobsTest, testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& tested) {
                           return tested.param == at::kFloat ? "fp32" : "bf16";
                         });

}  // namespace
}  // namespace freshet
