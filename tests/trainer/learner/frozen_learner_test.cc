#include "trainer/learner/frozen_learner.h"

#include "tests/trainer/learner/policy_learner_fixture.h"

namespace freshet {
namespace {

using testing::IsEmpty;

class FrozenLearnerTest : public PolicyLearnerFixture {
 protected:
  std::unique_ptr<FrozenLearner> Frozen(bool bf16) const {
    ModelSetup model;
    model.config = options_.model;
    auto learner = FrozenLearner::Create(model, /*seed=*/5, bf16);
    EXPECT_TRUE(learner.ok()) << learner.status();
    return *std::move(learner);
  }
};

TEST_F(FrozenLearnerTest, ItPublishesWhatATrainerOfTheJobWouldPublishFirst) {
  options_.device = "cpu";
  for (const bool bf16 : {false, true}) {
    options_.bf16 = bf16;
    const auto trained = MakeLearner();
    const auto frozen = Frozen(bf16);
    EXPECT_TRUE(*frozen->Arena() == *trained->Arena()) << bf16;
    const std::vector<WeightEntry> expected = trained->WeightEntries();
    ASSERT_EQ(frozen->entries().size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(frozen->entries()[i].name, expected[i].name);
      EXPECT_EQ(frozen->entries()[i].dtype, expected[i].dtype);
      EXPECT_EQ(frozen->entries()[i].shape, expected[i].shape);
      EXPECT_EQ(frozen->entries()[i].offset_bytes, expected[i].offset_bytes);
    }
    EXPECT_EQ(frozen->num_parameters(), trained->num_parameters());
  }
}

TEST_F(FrozenLearnerTest, AStepCountsTokensAndLeavesTheWeights) {
  const auto learner = Frozen(false);
  const std::string before(*learner->Arena());
  TrainGroup group;
  group.samples = {MakeTrainSample(MakePrompt(0, {1}), 0, {3, 4, 5}, {-1, -1, -1}, 1)};
  group.samples[0].loss_mask = {1, 0, 1};
  const auto result = learner->TrainStep(1, {group, group});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->tokens_trained, 4);
  EXPECT_EQ(result->loss, 0);
  EXPECT_THAT(result->advantages, IsEmpty());
  EXPECT_EQ(*learner->Arena(), before);
}

TEST_F(FrozenLearnerTest, ItsCheckpointHasNoWeightsAndIsComplete) {
  const auto learner = Frozen(false);
  const std::string path = Save(*learner, 3);
  const auto found = OpenCheckpoint(path);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->state.policy, (PolicyVersion{0, 3}));
  EXPECT_LT(std::filesystem::file_size(path + "/model.safetensors"), 200U);
}

}  // namespace
}  // namespace freshet
