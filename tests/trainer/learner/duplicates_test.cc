#include "trainer/learner/duplicates.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/learner/train_groups.h"

namespace freshet {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// A group with a sample for each entry; false: its policy was not asked.
std::vector<int32_t> DuplicatesOf(const std::vector<bool>& asked) {
  const auto prompt = MakePrompt(0, {1});
  TrainGroup group;
  for (const bool one : asked) {
    group.samples.push_back(MakeTrainSample(prompt, static_cast<int32_t>(group.samples.size()), {4},
                                            {-0.5F}, /*reward=*/0));
    if (!one) MakeNotAsked(group.samples.back());
  }
  return Duplicates(group);
}

TEST(Duplicates, TheAskedSamplesTakeTurnsInOrder) {
  EXPECT_THAT(DuplicatesOf({false, true, true}), ElementsAre(0, 1, 0));
  EXPECT_THAT(DuplicatesOf({true, false, true, false, false}), ElementsAre(2, 0, 1, 0, 0));
  EXPECT_THAT(DuplicatesOf({false, false, false, true}), ElementsAre(0, 0, 0, 3));
}

TEST(Duplicates, NoneAreNeededOrThereAreNone) {
  EXPECT_THAT(DuplicatesOf({true, true}), ElementsAre(0, 0));
  EXPECT_THAT(DuplicatesOf({false, false}), ElementsAre(0, 0));
}

TEST(AddDuplicates, ASampleCountsOnceMoreWithAllItsSegments) {
  const auto prompt = MakePrompt(4, {99});
  TrainGroup group;
  for (int32_t i = 0; i < 3; ++i) {
    group.samples.push_back(
        MakeTrainSample(prompt, i, {1, 2, 5, 6, 1, 3, 7}, std::vector<float>(7, -0.5F), i));
    Response response = *group.samples.back().sample.response;
    response.segments = {0, 4};
    response.loss_mask = group.samples.back().loss_mask = {0, 0, 1, 1, 0, 0, 1};
    if (i == 1) {
      response.finish = FinishReason::kNotAsked;
      response.segments = {};
      response.loss_mask = group.samples.back().loss_mask = std::vector<uint8_t>(7, 0);
    }
    ReplaceResponse(group.samples.back(), response);
  }
  TrainingRows rows = *MakeTrainingRows({group}, AdvantageKind::kDrGrpo, true);
  ASSERT_EQ(rows.trees.size(), 3U) << "the first segments, the second ones, and not asked";
  EXPECT_EQ(AddDuplicates({group}, rows), 1);
  EXPECT_THAT(rows.columns[0].loss_mask, ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(rows.columns[1].loss_mask, ElementsAre(2, 1));
  EXPECT_THAT(rows.columns[2].loss_mask, Each(0));
  EXPECT_EQ(rows.columns[0].LossWeight(), 6);
  EXPECT_EQ(rows.columns[0].LossTokens(), 4);
  EXPECT_EQ(rows.columns[0].duplicates, 1);
  EXPECT_EQ(rows.columns[1].duplicates, 1);
  EXPECT_EQ(rows.columns[2].duplicates, 0);
}

}  // namespace
}  // namespace freshet
