#include "trainer/learner/microbatches.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
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
    EXPECT_EQ(SplitByTokens(trees, MicrobatchTokens(trees, 8192, kSmall)).size(), parts) << count;
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

class MicrobatchesTest : public testing::TestWithParam<int> {
 protected:
  at::Tensor weight_ = at::ones({1}, at::kFloat).set_requires_grad(true);
  at::Tensor unused_ = at::ones({1}, at::kFloat).set_requires_grad(true);
  Microbatches microbatches_{
      GetParam(), /*max_tokens=*/100, {{"weight", weight_}, {"unused", unused_}}};
};

TEST_P(MicrobatchesTest, GradientsAddUpInTheOrderOfTheMicrobatches) {
  // In another order, a sum of these would be another number: 1 is lost beside 1e8.
  const std::vector<float> factors = {1e8F, 1.0F, -1e8F, 1.0F, 3.0F};
  ASSERT_TRUE(microbatches_
                  .AddGradients({60, 60, 40, 40, 40},
                                [&](size_t i) -> absl::StatusOr<at::Tensor> {
                                  return (weight_ * factors[i]).sum();
                                })
                  .ok());
  EXPECT_EQ(weight_.grad().item<float>(), 4.0F);
  EXPECT_FALSE(unused_.grad().defined());
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
      [](size_t) -> absl::StatusOr<at::Tensor> { throw std::runtime_error("no memory"); });
  EXPECT_EQ(thrown.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(thrown.message()), HasSubstr("no memory"));
}

TEST_P(MicrobatchesTest, ThoseComputedAtOnceHaveNoMoreThanTheMostTokens) {
  const std::vector<int64_t> tokens = {60, 60, 30, 30, 30, 300, 10, 90, 20};
  std::atomic<int64_t> at_once = 0;
  std::atomic<int> done = 0;
  const absl::Status status = microbatches_.ForEach(tokens, [&](size_t i) -> absl::Status {
    const int64_t now = at_once += tokens[i];
    const absl::Cleanup over = [&] { at_once -= tokens[i]; };
    ++done;
    if (now > std::max<int64_t>(tokens[i], 100)) return InvalidArgument(now, " tokens at once");
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(done, std::ssize(tokens));
}

INSTANTIATE_TEST_SUITE_P(Threads, MicrobatchesTest, testing::Values(1, 2, 3));

}  // namespace
}  // namespace freshet
