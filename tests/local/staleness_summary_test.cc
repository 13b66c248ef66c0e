#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/local/run_recorder.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::Pair;

// A sample whose tokens were made by `versions`, one each; `mask` says which bear loss.
TrainSample MakeSample(const std::vector<int64_t>& versions, std::vector<uint8_t> mask = {}) {
  Response response;
  for (size_t i = 0; i < versions.size(); ++i) {
    const auto at = static_cast<int32_t>(i);
    response.response_ids.push_back(1);
    response.spans.push_back({{0, versions[i]}, at, at + 1});
  }
  TrainSample sample;
  sample.sample.response = std::make_shared<const Response>(std::move(response));
  sample.loss_mask = mask.empty() ? std::vector<uint8_t>(versions.size(), 1) : std::move(mask);
  return sample;
}

TEST(StalenessSummary, CountsTokensByAge) {
  const std::vector<TrainGroup> groups = {{0, {MakeSample({5, 5, 4}), MakeSample({3})}},
                                          {1, {MakeSample({5, 4})}}};
  const StalenessSummary summary = SummarizeStaleness(groups, /*train_version=*/5);
  EXPECT_THAT(summary.tokens, ElementsAre(Pair(0, 3), Pair(1, 2), Pair(2, 1)));
  EXPECT_DOUBLE_EQ(summary.mean, (0 * 3 + 1 * 2 + 2 * 1) / 6.0);
  EXPECT_EQ(summary.p50, 0);  // 3 of 6 tokens are that young
  EXPECT_EQ(summary.max, 2);
}

TEST(StalenessSummary, LeavesOutTokensWithoutLoss) {
  const std::vector<TrainGroup> groups = {{0, {MakeSample({1, 3, 3}, {0, 1, 1})}}};
  const StalenessSummary summary = SummarizeStaleness(groups, /*train_version=*/4);
  EXPECT_THAT(summary.tokens, ElementsAre(Pair(1, 2)));
  EXPECT_EQ(summary.max, 1) << "the masked token is 3 versions old";
  EXPECT_EQ(summary.mean, 1);
}

TEST(StalenessSummary, CountsTheTokensOfAWholeSpan) {
  TrainSample sample = MakeSample({0, 0, 0, 0, 0});
  Response response = *sample.sample.response;
  response.spans = {{{0, 7}, 0, 2}, {{0, 8}, 2, 5}};
  sample.sample.response = std::make_shared<const Response>(std::move(response));
  const StalenessSummary summary = SummarizeStaleness({{0, {sample}}}, /*train_version=*/8);
  EXPECT_THAT(summary.tokens, ElementsAre(Pair(0, 3), Pair(1, 2)));
}

TEST(StalenessSummary, TheMedianIsTheFirstAgeThatCoversHalf) {
  EXPECT_EQ(SummarizeStaleness({{0, {MakeSample({4, 3, 3})}}}, 4).p50, 1);
  EXPECT_EQ(SummarizeStaleness({{0, {MakeSample({4, 4, 3})}}}, 4).p50, 0);
  EXPECT_EQ(SummarizeStaleness({{0, {MakeSample({2})}}}, 4).p50, 2);
}

TEST(StalenessSummary, NoTokensGiveZeros) {
  const StalenessSummary summary = SummarizeStaleness({{0, {MakeSample({1}, {0})}}}, 4);
  EXPECT_TRUE(summary.tokens.empty());
  EXPECT_EQ(summary.mean, 0);
  EXPECT_EQ(summary.p50, 0);
  EXPECT_EQ(summary.max, 0);
}

}  // namespace
}  // namespace freshet
