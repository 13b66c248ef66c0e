#include "services/reward/worker/reward_setup.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using testing::StartsWith;

job::v1::RewardComponent& Add(job::v1::JobSpec& spec, const std::string& name,
                              const std::string& type, double weight) {
  job::v1::RewardComponent& component = (*spec.mutable_reward()->mutable_components())[name];
  component.set_type(type);
  component.set_weight(weight);
  return component;
}

TEST(RewardSetup, MakesEveryComponentWithItsWeightAndOptions) {
  job::v1::JobSpec spec;
  Add(spec, "exact", "exact_match", 2).set_text("{answer}");
  job::v1::RewardComponent& brief = Add(spec, "brief", "length", -1);
  brief.set_max_tokens(2);
  brief.set_shape("window");
  const auto scorer = MakeCompositeScorer(spec.reward());
  ASSERT_TRUE(scorer.ok()) << scorer.status();
  const std::map<std::string, std::string> row = {{"answer", "7"}};
  const auto score = (*scorer)->Score({"7", 2, true, row});
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->reward, 2 * 1 - 1 * 1);
}

TEST(RewardSetup, NamesTheKeyOfABadOption) {
  job::v1::JobSpec spec;
  Add(spec, "form", "regex", 1).set_pattern("(");
  EXPECT_THAT(Message(MakeCompositeScorer(spec.reward()).status()),
              StartsWith("reward.components.form.pattern does not compile"));
}

TEST(RewardSetup, AnUnconnectedScorerNeverRewards) {
  job::v1::JobSpec spec;
  Add(spec, "mine", "grpc", 1).set_address("host:9000");
  const auto scorer = MakeCompositeScorer(spec.reward(), UnconnectedScorers());
  ASSERT_TRUE(scorer.ok()) << scorer.status();
  const std::map<std::string, std::string> row;
  const auto score = (*scorer)->Score({"7", 2, true, row});
  EXPECT_EQ(score.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(score.status()), testing::HasSubstr("host:9000"));
}

TEST(RewardSetup, ARowHasTheTimeOfTheJob) {
  job::v1::JobSpec spec;
  spec.mutable_reward()->set_timeout_ms(321);
  EXPECT_EQ(MakeRewardOptions(spec).score_timeout, absl::Milliseconds(321));
}

TEST(RewardSetup, AServiceOfTheUsersIsCalledAsOftenAsTheJobSays) {
  job::v1::JobSpec spec;
  Add(spec, "mine", "grpc", 1).set_address("host:9000");
  EXPECT_EQ(MakeRewardOptions(spec).parallel, 16);
  spec.mutable_reward()->set_parallel(40);
  EXPECT_EQ(MakeRewardOptions(spec).parallel, 40);
  EXPECT_EQ(MakeRewardOptions(spec).batch_rows, 1) << "no row is leased before it can be scored";
}

TEST(RewardSetup, OtherScorersGetAThreadPerProcessorAtMost) {
  job::v1::JobSpec spec;
  Add(spec, "exact", "exact_match", 1);
  EXPECT_EQ(RewardParallel(spec, 2), 2);
  EXPECT_EQ(RewardParallel(spec, 64), 16);
  EXPECT_EQ(RewardParallel(spec, 0), 1) << "nobody knows how many there are";
  spec.mutable_reward()->set_parallel(1);
  EXPECT_EQ(RewardParallel(spec, 64), 1);
}

}  // namespace
}  // namespace freshet
