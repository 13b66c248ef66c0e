#include "trainer/loop/step_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/learner/train_groups.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::Pair;

// A sample with one token per entry of `versions`; `mask` selects the loss-bearing ones.
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
  EXPECT_EQ(summary.p50, 0);  // 3 of 6 tokens have age 0
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

TEST(StalenessSummary, ReplayedSamplesAreApart) {
  TrainSample copy = MakeSample({1, 2});
  copy.sample.replay_of = "a/1/0/0";
  copy.min_version = 1;
  const StalenessSummary summary = SummarizeStaleness({{0, {MakeSample({8}), copy}}}, 9);
  EXPECT_THAT(summary.tokens, ElementsAre(Pair(1, 1)));
  EXPECT_EQ(summary.max, 1);
  EXPECT_EQ(summary.samples_replayed, 1);
  EXPECT_EQ(summary.replay_age_max, 8);
}

TEST(StalenessSummary, NoTokensGiveZeros) {
  const StalenessSummary summary = SummarizeStaleness({{0, {MakeSample({1}, {0})}}}, 4);
  EXPECT_TRUE(summary.tokens.empty());
  EXPECT_EQ(summary.mean, 0);
  EXPECT_EQ(summary.p50, 0);
  EXPECT_EQ(summary.max, 0);
}

// Two groups of two samples with rewards 1 to 4.
std::vector<TrainGroup> ScoredGroups() {
  std::vector<TrainGroup> groups;
  for (int64_t g = 0; g < 2; ++g) {
    TrainGroup& group = groups.emplace_back();
    group.ordinal = g;
    for (int64_t s = 0; s < 2; ++s) {
      TrainSample& sample = group.samples.emplace_back(MakeSample({0, 0}));
      Score score;
      score.reward = static_cast<double>(2 * g + s + 1);
      sample.sample.score = std::make_shared<const Score>(score);
      auto prompt = std::make_shared<Prompt>();
      prompt->attributes["prompt"] = "ask";
      sample.sample.prompt = std::move(prompt);
    }
  }
  return groups;
}

TEST(SummarizeStep, CountsWhatHappenedBetweenTwoReadingsOfTheStore) {
  const std::vector<TrainGroup> groups = ScoredGroups();
  FinishedStep report;
  report.step = 1;
  report.policy.version = 1;
  report.groups = &groups;
  StoreStats before, now;
  before.generation = {1000, absl::Seconds(10), absl::Seconds(2)};
  before.transitions[static_cast<size_t>(GroupState::kFiltered)] = 3;
  now = before;
  const StepMetrics nothing =
      SummarizeStep(report, before, now, /*has_reference=*/false, /*has_tasks=*/true);
  EXPECT_EQ(nothing.tokens_generated, 0);
  EXPECT_EQ(nothing.rollout_idle_seconds, 0);
  EXPECT_EQ(nothing.weight_swap_seconds, 0);
  EXPECT_EQ(nothing.groups_filtered, 0);
  now.generation = {1500, absl::Milliseconds(11'500), absl::Milliseconds(2250)};
  now.transitions[static_cast<size_t>(GroupState::kFiltered)] = 5;
  report.result.selection = {1.5, 2, 3, 4, 5};
  report.result.duplicated_samples = 6;
  const StepMetrics metrics =
      SummarizeStep(report, before, now, /*has_reference=*/false, /*has_tasks=*/true);
  EXPECT_EQ(metrics.sampled_entropy, 1.5);
  EXPECT_EQ(metrics.loss_masked_turns, 2);
  EXPECT_EQ(metrics.loss_masked_samples, 3);
  EXPECT_EQ(metrics.loss_masked_tokens, 4);
  EXPECT_EQ(metrics.loss_weighted_tokens, 5);
  EXPECT_EQ(metrics.samples_duplicated, 6);
  EXPECT_EQ(metrics.tokens_generated, 500);
  EXPECT_DOUBLE_EQ(metrics.rollout_idle_seconds, 1.5);
  EXPECT_DOUBLE_EQ(metrics.weight_swap_seconds, 0.25);
  EXPECT_EQ(metrics.groups_filtered, 2);
}

TEST(SummarizeStep, LengthsAreThoseOfSamplesThatWereAskedFor) {
  std::vector<TrainGroup> groups = ScoredGroups();
  FinishedStep report;
  report.step = 1;
  report.groups = &groups;
  const auto metrics = [&] {
    return SummarizeStep(report, {}, {}, /*has_reference=*/false, /*has_tasks=*/false);
  };
  const auto mean_length = [&] { return metrics().completion_length_mean; };
  EXPECT_EQ(metrics().samples_not_asked, 0);
  const double all = mean_length();
  EXPECT_GT(all, 0);
  for (TrainGroup& group : groups) {
    for (TrainSample& sample : group.samples) {
      EXPECT_EQ(mean_length(), all);
      Response response = *sample.sample.response;
      response.finish = FinishReason::kNotAsked;
      sample.sample.response = std::make_shared<const Response>(std::move(response));
    }
  }
  EXPECT_EQ(mean_length(), 0);
  EXPECT_EQ(metrics().samples_not_asked, 4);
}

std::vector<SampleRow> Rows(const FinishedStep& report, int64_t most) {
  return SampleRows(report, most,
                    [](const std::vector<int32_t>& ids) { return std::string(ids.size(), 'x'); });
}

TEST(SampleRows, CarryTheAdvantageOfTheLearner) {
  const std::vector<TrainGroup> groups = ScoredGroups();
  FinishedStep report;
  report.groups = &groups;
  report.result.advantages = {{-0.5, 0.5}, {-0.25, 0.25}};
  const std::vector<SampleRow> rows = Rows(report, 3);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].advantage, -0.5);
  EXPECT_EQ(rows[1].advantage, 0.5);
  EXPECT_EQ(rows[2].advantage, -0.25);
  EXPECT_EQ(rows[2].reward, 3);
  EXPECT_EQ(rows[2].prompt, "ask");
  EXPECT_EQ(rows[2].completion, "xx");
}

TEST(SampleRows, ASampleThatWasNotAskedForHasNoText) {
  std::vector<TrainGroup> groups = ScoredGroups();
  MakeNotAsked(groups[0].samples[0]);
  FinishedStep report;
  report.groups = &groups;
  const std::vector<SampleRow> rows = Rows(report, 1);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].completion, "");
  EXPECT_EQ(rows[0].tokens, 0);
  EXPECT_EQ(rows[0].finish, "not_asked");
}

TEST(SampleRows, ALearnerNeedNotTellAdvantages) {
  const std::vector<TrainGroup> groups = ScoredGroups();
  FinishedStep report;
  report.groups = &groups;
  const std::vector<SampleRow> rows = Rows(report, 100);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[3].advantage, 0);
}

}  // namespace
}  // namespace freshet
