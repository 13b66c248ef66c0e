#include "trainer/learner/microbatches.h"

#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::HasSubstr;

constexpr int64_t kSmall = 1000;
constexpr int64_t kTooLarge = int64_t{1} << 28;  // parameters of a model with 1 GiB of gradients

// Trees of `tokens` tokens each.
std::vector<PackTree> Trees(size_t count, size_t tokens) {
  return {count, PackTree{std::vector<int32_t>(tokens, 1), {}}};
}

TEST(MicrobatchTokens, ABatchIsCutIntoAPowerOfTwoOfParts) {
  EXPECT_GE(MicrobatchTokens(Trees(5, 100), 8192, kSmall), 500) << "too short to be cut";
  for (const auto& [count, parts] : std::vector<std::pair<size_t, size_t>>{
           {60, 2}, {100, 2}, {110, 4}, {200, 4}, {210, 8}, {800, 8}}) {
    const std::vector<PackTree> trees = Trees(count, 10);
    EXPECT_EQ(PackByTokens(trees, MicrobatchTokens(trees, 8192, kSmall)).size(), parts) << count;
  }
}

TEST(MicrobatchTokens, TheJobsLimitHolds) {
  EXPECT_EQ(MicrobatchTokens(Trees(40, 100), 200, kSmall), 200);
  EXPECT_EQ(MicrobatchTokens(Trees(400, 100), 4096, kSmall), 512) << "eight at once";
  EXPECT_EQ(MicrobatchTokens(Trees(40, 100), 8192, kTooLarge), 8192);
}

TEST(MicrobatchThreads, GradientsOfAllThreadsFit) {
  EXPECT_EQ(MicrobatchThreads(2, kSmall), 2);
  EXPECT_EQ(MicrobatchThreads(64, kSmall), 8);
  EXPECT_EQ(MicrobatchThreads(64, kTooLarge / 3), 3);
  EXPECT_EQ(MicrobatchThreads(64, kTooLarge), 1);
  EXPECT_EQ(MicrobatchThreads(64, 2 * kTooLarge), 1);
}

TEST(EndOfWave, ThoseComputedAtOnceShareTheLimit) {
  const std::vector<int64_t> tokens = {60, 60, 30, 10, 300, 10, 10};
  EXPECT_EQ(EndOfWave(tokens, 0, 3, 100), 1U);
  EXPECT_EQ(EndOfWave(tokens, 1, 3, 100), 4U);
  EXPECT_EQ(EndOfWave(tokens, 1, 2, 100), 3U);
  EXPECT_EQ(EndOfWave(tokens, 4, 3, 100), 5U) << "larger than the limit";
  EXPECT_EQ(EndOfWave(tokens, 5, 3, 100), 7U);
  EXPECT_EQ(EndOfWave(tokens, 5, 1, 100), 6U);
}

class MicrobatchesTest : public testing::TestWithParam<int> {
 protected:
  static at::Tensor Leaf() {
    const at::Tensor leaf = at::ones({1}, at::kFloat).set_requires_grad(true);
    leaf.mutable_grad() = at::zeros({1});
    return leaf;
  }

  at::Tensor weight_ = Leaf();
  at::Tensor unused_ = Leaf();
  Microbatches microbatches_{
      GetParam(), /*max_tokens=*/120, {weight_, unused_}, [](int64_t tokens) {
        return MemoryUse{StrCat("microbatch of ", tokens), tokens, at::kCPU, "lower tokens"};
      }};
};

TEST_P(MicrobatchesTest, GradientsAddUpInTheOrderOfTheMicrobatches) {
  // In another order, or as sums of sums, this would be another number: 1 is lost beside 1e8.
  const at::Tensor gradient = weight_.grad();
  const std::vector<float> factors = {1.0F, 1e8F, -1e8F, 1.0F, 3.0F};
  ASSERT_TRUE(microbatches_
                  .AddGradients({40, 40, 40, 40, 40},
                                [&](size_t i, bool) -> absl::StatusOr<at::Tensor> {
                                  return (weight_ * factors[i]).sum();
                                })
                  .ok());
  EXPECT_EQ(gradient.item<float>(), 4.0F) << "in place";
  EXPECT_EQ(unused_.grad().item<float>(), 0.0F);
}

TEST_P(MicrobatchesTest, TheFirstErrorIsReturned) {
  const absl::Status status =
      microbatches_.ForEach({1, 1, 1, 1, 1, 1}, [](size_t i) -> absl::Status {
        if (i == 4) throw std::runtime_error("no memory");
        return i >= 2 ? InvalidArgument("microbatch ", i) : absl::OkStatus();
      });
  EXPECT_EQ(status, InvalidArgument("microbatch 2"));
  const absl::Status thrown = microbatches_.AddGradients(
      {1, 1, 1},
      [](size_t, bool) -> absl::StatusOr<at::Tensor> { throw std::runtime_error("no memory"); });
  EXPECT_EQ(thrown.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(thrown.message()), HasSubstr("no memory"));
}

TEST_P(MicrobatchesTest, AMicrobatchWithoutMemoryIsNamed) {
  const absl::Status status = microbatches_.ForEach({10, 20, 30}, [](size_t i) -> absl::Status {
    if (i == 1) throw std::bad_alloc();
    return absl::OkStatus();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no memory for the microbatch of 20,"));
}

INSTANTIATE_TEST_SUITE_P(Threads, MicrobatchesTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace freshet
