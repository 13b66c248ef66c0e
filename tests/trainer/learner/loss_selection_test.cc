#include "trainer/learner/loss_selection.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/learner/train_groups.h"
#include "trainer/learner/training_rows.h"

namespace freshet {
namespace {

using testing::ElementsAre;

// One sample of a group: log-probs of its tokens, 0 for those of the environment, and its reward.
struct Drawn {
  std::vector<float> logprobs;
  double reward = 0;
};

TrainGroup MakeGroup(int64_t ordinal, const std::vector<Drawn>& samples) {
  TrainGroup group{ordinal, {}};
  const auto prompt = MakePrompt(ordinal, {1});
  for (const Drawn& drawn : samples) {
    std::vector<int32_t> ids(drawn.logprobs.size());
    std::iota(ids.begin(), ids.end(), 5);
    TrainSample sample = MakeTrainSample(prompt, static_cast<int32_t>(group.samples.size()),
                                         std::move(ids), drawn.logprobs, drawn.reward);
    Response response = *sample.sample.response;
    for (size_t t = 0; t < drawn.logprobs.size(); ++t) {
      response.loss_mask[t] = drawn.logprobs[t] != 0 ? 1 : 0;
    }
    sample.loss_mask = response.loss_mask;
    ReplaceResponse(sample, std::move(response));
    group.samples.push_back(std::move(sample));
  }
  return group;
}

struct Selected {
  TrainingRows rows;
  LossSelection counts;

  const std::vector<float>& mask(size_t tree) const { return rows.columns[tree].loss_mask; }
};

Selected Select(const LossSpec& spec, const std::vector<TrainGroup>& groups,
                bool whole_responses = false) {
  Selected selected;
  auto rows = MakeTrainingRows(groups, AdvantageKind::kDrGrpo, whole_responses);
  EXPECT_TRUE(rows.ok()) << rows.status();
  selected.rows = *std::move(rows);
  const auto counts = SelectLossTokens(spec, /*tokenizer=*/nullptr, selected.rows);
  EXPECT_TRUE(counts.ok()) << counts.status();
  selected.counts = *counts;
  return selected;
}

LossSpec WithShare(double share) {
  LossSpec spec;
  spec.turn_entropy_share = share;
  return spec;
}

LossSpec WithControl(double low, double high) {
  LossSpec spec;
  spec.entropy_control = {low, high};
  return spec;
}

// Turns of entropy 2, 1 and 4, 2.
TrainGroup TwoTurnsEach() { return MakeGroup(0, {{{-1, -3, 0, -1, -1}, 1}, {{-4, 0, -2}, 0}}); }

TEST(SelectLossTokens, WithoutRulesOnlyMeasures) {
  const Selected selected = Select({}, {TwoTurnsEach()});
  EXPECT_THAT(selected.mask(0), ElementsAre(1, 1, 0, 1, 1, 1, 0, 1));
  // Means of the samples: (1 + 3 + 1 + 1) / 4 and (4 + 2) / 2.
  EXPECT_DOUBLE_EQ(selected.counts.sampled_entropy, (1.5 + 3) / 2);
  EXPECT_EQ(selected.counts.masked_tokens, 0);
}

TEST(SelectLossTokens, TheTurnsWithTheHighestEntropyOfAGroupKeepTheirLoss) {
  const Selected selected = Select(WithShare(0.5), {TwoTurnsEach()});
  EXPECT_THAT(selected.mask(0), ElementsAre(1, 1, 0, 0, 0, 1, 0, 0))
      << "of two turns of entropy 2 the first";
  EXPECT_EQ(selected.counts.masked_turns, 2);
  EXPECT_EQ(selected.counts.masked_tokens, 3);
  EXPECT_EQ(selected.rows.loss_tokens, 3);
}

TEST(SelectLossTokens, SharesAreRoundedUpAndAGroupKeepsOneTurn) {
  const auto kept = [](double share, const std::vector<TrainGroup>& groups) {
    return 4 - Select(WithShare(share), groups).counts.masked_turns;
  };
  EXPECT_EQ(kept(0.51, {TwoTurnsEach()}), 3);
  EXPECT_EQ(kept(0.25, {TwoTurnsEach()}), 1);
  EXPECT_EQ(kept(1e-12, {TwoTurnsEach()}), 1);
  EXPECT_EQ(kept(0.5, {MakeGroup(0, {{{-9}, 1}, {{-8}, 0}}), MakeGroup(1, {{{-1}, 1}, {{-2}, 0}})}),
            2);
}

TEST(SelectLossTokens, EachGroupHasItsOwnShare) {
  const Selected selected = Select(
      WithShare(0.5), {MakeGroup(0, {{{-9}, 1}, {{-8}, 0}}), MakeGroup(1, {{{-1}, 1}, {{-2}, 0}})});
  EXPECT_THAT(selected.mask(0), ElementsAre(1, 0));
  EXPECT_THAT(selected.mask(1), ElementsAre(0, 1));
}

TEST(SelectLossTokens, TokensThatTheStoreMaskedAreInNoEntropy) {
  TrainGroup group = MakeGroup(0, {{{-8, -1}, 1}, {{-2, -2}, 0}});
  group.samples[0].loss_mask = {0, 1};
  const Selected selected = Select(WithShare(0.5), {group});
  EXPECT_THAT(selected.mask(0), ElementsAre(0, 0, 1, 1));
  EXPECT_DOUBLE_EQ(selected.counts.sampled_entropy, 1.5);
}

TEST(SelectLossTokens, AStepWithoutALossTokenHasNoEntropy) {
  TrainGroup group = MakeGroup(0, {{{-8}, 1}, {{-2}, 0}});
  for (TrainSample& sample : group.samples) sample.loss_mask = {0};
  LossSpec spec = WithControl(1, 2);
  spec.turn_entropy_share = 0.5;
  const Selected selected = Select(spec, {group});
  EXPECT_EQ(selected.counts.sampled_entropy, 0);
  EXPECT_EQ(selected.counts.masked_turns, 0);
}

// Advantages 0.75 and three times -0.25; the entropy is (1 + 1 + 3 + 3) / 4 = 2.
TrainGroup ThreeFailures() { return MakeGroup(0, {{{-1}, 1}, {{-1}, 0}, {{-3}, 0}, {{-3}, 0}}); }

TEST(SelectLossTokens, AboveTheUpperBoundNoNegativeAdvantageBearsLoss) {
  const Selected selected = Select(WithControl(1, 2), {ThreeFailures()});
  EXPECT_THAT(selected.mask(0), ElementsAre(1, 0, 0, 0));
  EXPECT_EQ(selected.counts.masked_samples, 3);
  EXPECT_EQ(selected.counts.masked_tokens, 3);
}

TEST(SelectLossTokens, UpToTheLowerBoundAllBearLoss) {
  EXPECT_EQ(Select(WithControl(2, 3), {ThreeFailures()}).counts.masked_samples, 0);
  EXPECT_EQ(Select(WithControl(2, 2), {ThreeFailures()}).counts.masked_samples, 0);
  EXPECT_EQ(Select(WithControl(1.9, 1.9), {ThreeFailures()}).counts.masked_samples, 3);
}

TEST(SelectLossTokens, BetweenTheBoundsTheShareRisesAndTheHighestEntropyGoesFirst) {
  // Half of three, rounded up.
  EXPECT_THAT(Select(WithControl(1, 3), {ThreeFailures()}).mask(0), ElementsAre(1, 1, 0, 0));
  // A quarter of three is 0.75; of two samples of entropy 3 the first.
  EXPECT_THAT(Select(WithControl(1, 5), {ThreeFailures()}).mask(0), ElementsAre(1, 1, 0, 1));
}

// A sample of three conversations, each of a context token and one sampled token, that failed, and
// one of a single conversation that succeeded.
TrainGroup SeveralConversations() {
  TrainGroup group = MakeGroup(0, {{{0, -1, 0, -2, 0, -3}, 0}, {{0, -4}, 1}});
  TrainSample& sample = group.samples[0];
  Response response = *sample.sample.response;
  response.segments = {0, 2, 4};
  ReplaceResponse(sample, std::move(response));
  return group;
}

TEST(SelectLossTokens, ASampleOfSeveralConversationsCountsOnce) {
  const Selected selected =
      Select(WithControl(1, 2), {SeveralConversations()}, /*whole_responses=*/true);
  EXPECT_DOUBLE_EQ(selected.counts.sampled_entropy, (2 + 4) / 2.0) << "not (1 + 2 + 3 + 4) / 4";
  EXPECT_EQ(selected.counts.masked_samples, 1);
  EXPECT_EQ(selected.counts.masked_tokens, 3) << "of all of its conversations";
  EXPECT_EQ(selected.rows.loss_tokens, 1);
}

TEST(SelectLossTokens, BothRulesSeeTheWholeStepAndMayLeaveNothing) {
  LossSpec spec = WithControl(1, 2);
  spec.turn_entropy_share = 0.25;  // the third sample's turn
  const Selected selected = Select(spec, {ThreeFailures()});
  EXPECT_THAT(selected.mask(0), ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(selected.counts.masked_turns, 3);
  EXPECT_EQ(selected.counts.masked_samples, 3);
  EXPECT_EQ(selected.counts.masked_tokens, 4);
}

TEST(SelectLossTokens, WeightsNeedATokenizer) {
  auto rows = MakeTrainingRows({TwoTurnsEach()}, AdvantageKind::kDrGrpo);
  ASSERT_TRUE(rows.ok());
  LossSpec spec;
  spec.token_weights = {{"<c>", "</c>", 2}};
  EXPECT_EQ(SelectLossTokens(spec, nullptr, *rows).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace freshet
