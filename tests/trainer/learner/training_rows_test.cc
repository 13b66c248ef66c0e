#include "trainer/learner/training_rows.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/learner/train_groups.h"
#include "trainer/loss/advantage.h"

namespace freshet {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatEq;

std::vector<TrainGroup> TwoGroups() {
  const auto first = MakePrompt(4, {1, 2});
  const auto second = MakePrompt(9, {3});
  TrainGroup a{4,
               {MakeTrainSample(first, 0, {5, 6, 7}, {-0.1F, -0.2F, -0.3F}, 1.0),
                MakeTrainSample(first, 1, {8}, {-0.4F}, 0.0)}};
  TrainGroup b{9,
               {MakeTrainSample(second, 0, {9, 9}, {-0.5F, -0.6F}, 2.0),
                MakeTrainSample(second, 1, {7, 7}, {-0.7F, -0.8F}, 6.0)}};
  return {a, b};
}

TEST(MakeTrainingRows, EveryGroupIsATreeWithItsPromptStoredOnce) {
  const auto rows = MakeTrainingRows(TwoGroups(), AdvantageKind::kDrGrpo);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->trees.size(), 2U);
  EXPECT_THAT(rows->trees[0].prefix, ElementsAre(1, 2));
  EXPECT_THAT(rows->trees[0].suffixes, ElementsAre(ElementsAre(5, 6, 7), ElementsAre(8)));
  EXPECT_THAT(rows->trees[1].suffixes, ElementsAre(ElementsAre(9, 9), ElementsAre(7, 7)));
  EXPECT_EQ(rows->num_sequences, 4);
  EXPECT_EQ(rows->loss_tokens, 8);
}

TEST(MakeTrainingRows, ColumnsFollowTheTargetsOfThePackedBatch) {
  const auto rows = MakeTrainingRows(TwoGroups(), AdvantageKind::kDrGrpo);
  ASSERT_TRUE(rows.ok());
  const TrainingRows::Columns& a = rows->columns[0];
  EXPECT_THAT(a.behavior_logprobs, ElementsAre(-0.1F, -0.2F, -0.3F, -0.4F));
  EXPECT_THAT(a.advantages, ElementsAre(0.5F, 0.5F, 0.5F, -0.5F));  // mean 0.5
  EXPECT_THAT(a.sequence_index, ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(a.num_sequences, 2);
  EXPECT_THAT(rows->columns[1].advantages, ElementsAre(-2.0F, -2.0F, 2.0F, 2.0F));  // mean 4
  const PackedBatch batch = PackTrees({rows->trees[0]});
  EXPECT_EQ(batch.target_ids.size(), a.advantages.size());
  EXPECT_THAT(batch.target_ids, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(batch.target_sequences, a.sequence_index);
}

TEST(MakeTrainingRows, TheMaskIsTheBatchsNotTheResponses) {
  std::vector<TrainGroup> groups = TwoGroups();
  groups[0].samples[0].loss_mask = {0, 1, 0};
  const auto rows = MakeTrainingRows(groups, AdvantageKind::kDrGrpo);
  ASSERT_TRUE(rows.ok());
  EXPECT_THAT(rows->columns[0].loss_mask, ElementsAre(0.0F, 1.0F, 0.0F, 1.0F));
  EXPECT_EQ(rows->loss_tokens, 6);
}

TEST(MakeTrainingRows, AdvantagesAreOfTheKindAskedFor) {
  const auto rows = MakeTrainingRows(TwoGroups(), AdvantageKind::kRloo);
  ASSERT_TRUE(rows.ok());
  EXPECT_THAT(rows->columns[1].advantages,
              ElementsAre(FloatEq(-4), FloatEq(-4), FloatEq(4), FloatEq(4)));
}

TEST(MakeTrainingRows, ATaskIsNormalizedByItself) {
  std::vector<TrainGroup> groups = TwoGroups();
  groups.push_back(groups[1]);
  const auto set_task = [](TrainGroup& group, const std::string& task) {
    auto prompt = std::make_shared<Prompt>(*group.samples[0].sample.prompt);
    prompt->attributes["task"] = task;
    for (TrainSample& sample : group.samples) sample.sample.prompt = prompt;
  };
  set_task(groups[0], "a");
  set_task(groups[1], "b");
  set_task(groups[2], "a");
  const auto advantages = [&groups](bool by_task) {
    return MakeTrainingRows(groups, AdvantageKind::kReinforcePp, false, {}, by_task)->advantages;
  };
  const auto alone = [&groups](std::vector<size_t> wanted) {
    std::vector<std::vector<double>> rewards;
    for (const size_t g : wanted) {
      rewards.push_back(
          {groups[g].samples[0].sample.score->reward, groups[g].samples[1].sample.score->reward});
    }
    return *ComputeAdvantages(AdvantageKind::kReinforcePp, rewards);
  };
  EXPECT_EQ(advantages(false), alone({0, 1, 2}));
  EXPECT_THAT(advantages(true), ElementsAre(alone({0, 2})[0], alone({1})[0], alone({0, 2})[1]));
  groups[1].samples.pop_back();
  EXPECT_THAT(advantages(true)[1], ElementsAre(0));
}

TEST(MakeTrainingRows, EachTurnHasItsOwnAdvantage) {
  std::vector<TrainGroup> groups = {TwoGroups()[0]};
  // Both gain 1, but the first sample in its second turn, the other one in its first.
  groups[0].samples[1] = MakeTrainSample(groups[0].samples[0].sample.prompt, 1, {8, 9, 9, 9},
                                         {-0.4F, -0.4F, -0.4F, -0.4F}, 1.0);
  const auto steps = [&groups](size_t sample, std::vector<StepReward> rewards) {
    Score score = *groups[0].samples[sample].sample.score;
    score.step_rewards = std::move(rewards);
    groups[0].samples[sample].sample.score = std::make_shared<const Score>(std::move(score));
  };
  steps(0, {{1, 0.0}, {3, 1.0}});
  steps(1, {{2, 1.0}, {4, 0.0}});
  groups[0].samples[1].loss_mask = {1, 0, 1, 1};
  const auto rows =
      MakeTrainingRows(groups, AdvantageKind::kDrGrpo, false, TurnCredit{.discount = 1});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(rows->columns[0].advantages, ElementsAre(0.0F, 0.5F, 0.5F, 0.0F, 0.0F, -0.5F, -0.5F));
  EXPECT_THAT(rows->advantages[0], ElementsAre(1.0 / 3, -1.0 / 3)) << "means over the loss tokens";
  const auto whole = MakeTrainingRows(groups, AdvantageKind::kDrGrpo);
  ASSERT_TRUE(whole.ok());
  EXPECT_THAT(whole->columns[0].advantages, Each(0.0F));
}

// Two samples of a group: the first has two segments, of which the first has the second sample's
// prompt, {1, 2}.
TrainGroup Segmented() {
  const auto prompt = MakePrompt(4, {99});
  TrainGroup group{
      4,
      {MakeTrainSample(prompt, 0, {1, 2, 5, 6, 1, 3, 7}, {0, 0, -0.1F, -0.2F, 0, 0, -0.3F}, 1.0),
       MakeTrainSample(prompt, 1, {1, 2, 8}, {0, 0, -0.4F}, 0.0)}};
  Response response = *group.samples[0].sample.response;
  response.segments = {0, 4};
  response.spans = {{{0, 0}, 0, 4}, {{0, 0}, 4, 7}};
  response.loss_mask = group.samples[0].loss_mask = {0, 0, 1, 1, 0, 0, 1};
  ReplaceResponse(group.samples[0], response);
  response = *group.samples[1].sample.response;
  response.loss_mask = group.samples[1].loss_mask = {0, 0, 1};
  ReplaceResponse(group.samples[1], response);
  return group;
}

TEST(MakeTrainingRows, ASegmentIsASequence) {
  const auto rows = MakeTrainingRows({Segmented()}, AdvantageKind::kDrGrpo, true);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->trees.size(), 2U) << "one of the first segments, one of the second";
  EXPECT_THAT(rows->groups, ElementsAre(0, 0));
  EXPECT_THAT(rows->samples, ElementsAre(ElementsAre(0, 1), ElementsAre(0)));
  EXPECT_THAT(rows->trees[0].prefix, ElementsAre(1, 2));
  EXPECT_THAT(rows->trees[0].suffixes, ElementsAre(ElementsAre(5, 6), ElementsAre(8)));
  EXPECT_THAT(rows->trees[1].prefix, ElementsAre(1, 3));
  EXPECT_THAT(rows->trees[1].suffixes, ElementsAre(ElementsAre(7)));
  EXPECT_THAT(rows->columns[0].behavior_logprobs, ElementsAre(-0.1F, -0.2F, -0.4F));
  EXPECT_THAT(rows->columns[0].sequence_index, ElementsAre(0, 0, 1));
  EXPECT_THAT(rows->columns[0].advantages, ElementsAre(0.5F, 0.5F, -0.5F));
  EXPECT_THAT(rows->columns[1].behavior_logprobs, ElementsAre(-0.3F));
  EXPECT_THAT(rows->columns[1].advantages, ElementsAre(0.5F)) << "the sample's, in all segments";
  EXPECT_EQ(rows->num_sequences, 3);
  EXPECT_EQ(rows->loss_tokens, 4);
}

TEST(MakeTrainingRows, ARewardIsDiscountedBySegment) {
  TrainGroup group = Segmented();
  group.samples[1] = group.samples[0];
  auto score = std::make_shared<Score>();
  group.samples[1].sample.score = score;  // 0
  const auto rows =
      MakeTrainingRows({group}, AdvantageKind::kDrGrpo, true, TurnCredit{.discount = 0.5});
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(rows->columns[0].advantages, ElementsAre(0.25F, 0.25F, -0.25F, -0.25F));
  EXPECT_THAT(rows->columns[1].advantages, ElementsAre(0.5F, -0.5F));
}

TEST(MakeTrainingRows, SamplesThatWereNotAskedForHaveATreeOfTheirOwnAndAReward) {
  const auto prompt = MakePrompt(4, {1});
  TrainGroup group{4, {}};
  for (int32_t i = 0; i < 3; ++i) {
    const bool asked = i > 0;
    TrainSample& sample = group.samples.emplace_back(MakeTrainSample(
        prompt, i, asked ? std::vector<int32_t>{2, 3, 4 + i} : std::vector<int32_t>{2, 2},
        std::vector<float>(asked ? 3 : 2, -0.5F), i));
    Response response = *sample.sample.response;
    response.loss_mask = sample.loss_mask =
        asked ? std::vector<uint8_t>{0, 0, 1} : std::vector<uint8_t>{0, 0};
    if (!asked) response.finish = FinishReason::kNotAsked;
    ReplaceResponse(sample, std::move(response));
  }
  const auto rows = MakeTrainingRows({group}, AdvantageKind::kDrGrpo, true);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->trees.size(), 2U);
  EXPECT_THAT(rows->trees[0].prefix, ElementsAre(2, 3)) << "as if all had been asked";
  EXPECT_THAT(rows->columns[0].advantages, ElementsAre(0.0F, 1.0F)) << "rewards 0, 1, 2";
  EXPECT_EQ(rows->columns[0].SampledSequences(), 2);
  EXPECT_THAT(rows->columns[1].loss_mask, ElementsAre(0.0F));
  EXPECT_EQ(rows->columns[1].SampledSequences(), 0);
  EXPECT_EQ(rows->loss_tokens, 2);
}

TEST(MakeTrainingRows, SegmentsNeedAPromptOfTheirOwn) {
  const auto rows = MakeTrainingRows({Segmented()}, AdvantageKind::kDrGrpo);
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(rows.status()), testing::HasSubstr("job/4/0/0"));
}

TEST(MakeTrainingRows, NamesTheSampleWithoutAScore) {
  std::vector<TrainGroup> groups = TwoGroups();
  groups[1].samples[1].sample.score = nullptr;
  const auto rows = MakeTrainingRows(groups, AdvantageKind::kGrpo);
  EXPECT_EQ(rows.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(rows.status()), testing::HasSubstr("job/9/0/1"));
}

}  // namespace
}  // namespace freshet
