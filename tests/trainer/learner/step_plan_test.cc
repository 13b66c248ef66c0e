#include "trainer/learner/step_plan.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_model.h"
#include "tests/trainer/learner/train_groups.h"

namespace freshet {
namespace {

using testing::ElementsAre;

// Of group g all prompts have 3 + g times the token g.
StepPlan Plan(int32_t groups, int64_t minibatches) {
  PolicyLearnerOptions options;
  options.model = TinyModel();
  options.minibatches_per_step = minibatches;
  options.max_new_tokens = 9;
  options.loss.anchor = AnchorKind::kProximal;
  std::vector<TrainGroup> batch;
  for (int32_t g = 0; g < groups; ++g) {
    const auto prompt = MakePrompt(g, std::vector<int32_t>(static_cast<size_t>(3 + g), g));
    TrainGroup& group = batch.emplace_back();
    for (int32_t i = 0; i < 2; ++i) {
      group.samples.push_back(MakeTrainSample(prompt, i, {4, 5}, {-0.5F, -1.0F}, i));
    }
  }
  return *PlanStep(options, 3, batch);
}

std::vector<int32_t> FirstTokens(const Minibatch& minibatch) {
  std::vector<int32_t> tokens;
  for (const PackTree& tree : minibatch.rows.trees) tokens.push_back(tree.prefix[0]);
  return tokens;
}

TEST(PlanStep, MinibatchesHaveTheGroupsInOrderAndTheirOwnDenominators) {
  const StepPlan plan = Plan(6, 2);
  EXPECT_EQ(plan.step, 3);
  EXPECT_TRUE(plan.proximal);
  EXPECT_EQ(plan.advantages.size(), 6U);
  ASSERT_EQ(plan.minibatches.size(), 2U);
  EXPECT_THAT(FirstTokens(plan.minibatches[0]), ElementsAre(0, 1, 2));
  EXPECT_THAT(FirstTokens(plan.minibatches[1]), ElementsAre(3, 4, 5));
  for (const Minibatch& minibatch : plan.minibatches) {
    EXPECT_EQ(minibatch.normalizer.total_tokens, 12);
    EXPECT_EQ(minibatch.normalizer.total_sequences, 6);
    EXPECT_EQ(minibatch.normalizer.max_tokens, 9);
  }
}

TEST(PlanStep, SamplesThatWereNotAskedForAreNotInTheDenominators) {
  const auto prompt = MakePrompt(0, {1});
  TrainGroup group{0, {}};
  for (int32_t i = 0; i < 3; ++i) {
    TrainSample& sample =
        group.samples.emplace_back(MakeTrainSample(prompt, i, {4, 5}, {0, -0.5F}, i));
    Response response = *sample.sample.response;
    const bool asked = i > 0;
    response.loss_mask = sample.loss_mask = {0, static_cast<uint8_t>(asked)};
    if (!asked) response.finish = FinishReason::kNotAsked;
    ReplaceResponse(sample, std::move(response));
  }
  PolicyLearnerOptions options;
  options.whole_responses = true;
  EXPECT_EQ(PlanStep(options, 1, {group})->minibatches[0].normalizer.total_sequences, 2);
  options.loss.duplicate = true;
  const auto full = PlanStep(options, 1, {group});
  EXPECT_EQ(full->minibatches[0].normalizer.total_sequences, 3);
  EXPECT_EQ(full->minibatches[0].normalizer.total_tokens, 3);
  EXPECT_EQ(full->minibatches[0].rows.loss_tokens, 2);
  EXPECT_EQ(full->duplicated_samples, 1);
  group.samples = {group.samples[0], group.samples[0]};
  const auto plan = PlanStep(options, 1, {group});
  EXPECT_EQ(plan->minibatches[0].normalizer.total_sequences, 1);
  EXPECT_EQ(plan->minibatches[0].normalizer.total_tokens, 1) << "any value above 0";
}

TEST(PlanStep, MaskedTokensCountInTheDenominators) {
  const auto prompt = MakePrompt(0, {1});
  const std::vector<TrainGroup> batch = {{0,
                                          {MakeTrainSample(prompt, 0, {4, 5}, {-0.5F, -0.5F}, 1),
                                           MakeTrainSample(prompt, 1, {4}, {-1.0F}, 0)}}};
  PolicyLearnerOptions options;
  options.loss.turn_entropy_share = 0.5;
  options.loss.entropy_control = {0.0, 0.5};
  const absl::StatusOr<StepPlan> plan = PlanStep(options, 1, batch);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->minibatches[0].rows.loss_tokens, 0);
  EXPECT_EQ(plan->minibatches[0].normalizer.total_tokens, 3);
  EXPECT_EQ(plan->selection.masked_tokens, 3);
}

TEST(PlanStep, InASingleMinibatchTheCurrentPolicyIsTheProximalOne) {
  EXPECT_FALSE(Plan(4, 1).proximal);
  EXPECT_FALSE(Plan(1, 4).proximal) << "a minibatch has at least one group";
}

TEST(BalanceTrees, TheCostliestFirstToTheRankWithLeast) {
  EXPECT_THAT(BalanceTrees({1, 5, 3, 3, 2}, 2), ElementsAre(1, 0, 1, 1, 0));
  EXPECT_THAT(BalanceTrees({1, 2}, 1), ElementsAre(0, 0));
  EXPECT_THAT(BalanceTrees({}, 3), ElementsAre());
  EXPECT_THAT(BalanceTrees({4}, 3), ElementsAre(0));
}

TEST(DivideMinibatch, EveryTreeIsInOneShareAndTheDenominatorsAreThoseOfAll) {
  const Minibatch whole = Plan(3, 1).minibatches[0];
  const std::vector<RankShare> shares = DivideMinibatch(TinyModel(), whole, 2);
  ASSERT_EQ(shares.size(), 2U);
  EXPECT_THAT(shares[0].trees, ElementsAre(2));
  EXPECT_THAT(shares[1].trees, ElementsAre(0, 1));
  EXPECT_THAT(FirstTokens(shares[0].minibatch), ElementsAre(2));
  EXPECT_THAT(FirstTokens(shares[1].minibatch), ElementsAre(0, 1));
  EXPECT_EQ(shares[0].minibatch.rows.loss_tokens, 4);
  EXPECT_EQ(shares[1].minibatch.rows.num_sequences, 4);
  for (const RankShare& share : shares) {
    EXPECT_EQ(share.minibatch.normalizer.total_tokens, whole.normalizer.total_tokens);
  }
  EXPECT_THAT(DivideMinibatch(TinyModel(), whole, 1)[0].trees, ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace freshet
