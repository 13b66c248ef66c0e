#include "trainer/service/training_metrics.h"

#include <prometheus/registry.h>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/registry_text.h"
#include "tests/trainer/learner/train_groups.h"

namespace freshet {
namespace {

using testing::IsEmpty;

job::v1::JobSpec WithBound(int64_t staleness) {
  job::v1::JobSpec spec;
  spec.mutable_staleness()->set_max(staleness);
  return spec;
}

class TrainingMetricsTest : public testing::Test {
 protected:
  MetricsText Scraped() {
    MetricsText text = Scrape(registry_);
    EXPECT_THAT(text.problems(), IsEmpty());
    return text;
  }
  static MetricLabels Job(MetricLabels more = {}) {
    more["job"] = "a";
    return more;
  }

  prometheus::Registry registry_;
  TrainingMetrics metrics_{registry_, "a", WithBound(5)};
};

TEST_F(TrainingMetricsTest, ShowsZerosFromTheStart) {
  const MetricsText text = Scraped();
  EXPECT_EQ(text.Find("freshet_trajectory_staleness_versions_count", Job()), 0);
  EXPECT_EQ(text.Find("freshet_trainer_wait_seconds_total", Job()), 0);
  EXPECT_EQ(text.Find("freshet_tokens_total", Job({{"phase", "trained"}})), 0);
  EXPECT_EQ(text.Find("freshet_group_solved_total", Job({{"outcome", "some"}})), 0);
}

TEST_F(TrainingMetricsTest, FiguresOfTheLastStepAppearWithTheFirst) {
  const char* const names[] = {"freshet_reward_mean",         "freshet_loss",
                               "freshet_policy_entropy_nats", "freshet_sampled_entropy_nats",
                               "freshet_policy_kl_nats",      "freshet_clip_ratio",
                               "freshet_grad_norm",           "freshet_importance_weight_mean",
                               "freshet_logprob_diff",        "freshet_learning_rate"};
  metrics_.OnVersion(3);  // redone after a restart
  for (const char* name : names) EXPECT_FALSE(Scraped().Has(name)) << name;
  StepMetrics step;
  step.reward_mean = 0.75;
  metrics_.OnStep(step);
  for (const char* name : names) EXPECT_TRUE(Scraped().Has(name)) << name;
  EXPECT_EQ(Scraped().Find("freshet_reward_mean", Job()), 0.75);
}

TEST_F(TrainingMetricsTest, CountsWhatTheRulesOfTheLossDid) {
  StepMetrics step;
  step.loss_masked_turns = 2;
  step.loss_masked_samples = 3;
  step.loss_masked_tokens = 40;
  step.loss_weighted_tokens = 5;
  metrics_.OnStep(step);
  metrics_.OnStep(step);
  const MetricsText text = Scraped();
  EXPECT_EQ(text.Find("freshet_loss_masked_turns_total", Job()), 4);
  EXPECT_EQ(text.Find("freshet_loss_masked_samples_total", Job()), 6);
  EXPECT_EQ(text.Find("freshet_loss_masked_tokens_total", Job()), 80);
  EXPECT_EQ(text.Find("freshet_loss_weighted_tokens_total", Job()), 10);
}

TEST_F(TrainingMetricsTest, TellsDuplicatesFromDrops) {
  StepMetrics step;
  step.samples_not_asked = 5;
  step.samples_duplicated = 3;
  metrics_.OnStep(step);
  const MetricsText text = Scraped();
  const std::string name = "freshet_not_asked_samples_total";
  EXPECT_EQ(text.Find(name, Job({{"outcome", "dropped"}})), 2);
  EXPECT_EQ(text.Find(name, Job({{"outcome", "duplicated"}})), 3);
}

TEST_F(TrainingMetricsTest, StalenessIsWeightedByTokens) {
  StepMetrics step;
  step.staleness_tokens = {{0, 100}, {2, 30}, {5, 7}};
  step.samples_replayed = 3;
  metrics_.OnStep(step);
  metrics_.OnStep(step);
  const MetricsText text = Scraped();
  const std::string name = "freshet_trajectory_staleness_versions";
  EXPECT_EQ(text.Find(name + "_count", Job()), 274);
  EXPECT_EQ(text.Find(name + "_sum", Job()), 2 * (2 * 30 + 5 * 7));
  EXPECT_EQ(text.Find(name + "_bucket", Job({{"le", "0"}})), 200);
  EXPECT_EQ(text.Find(name + "_bucket", Job({{"le", "1"}})), 200);
  EXPECT_EQ(text.Find(name + "_bucket", Job({{"le", "2"}})), 260);
  EXPECT_EQ(text.Find(name + "_bucket", Job({{"le", "4"}})), 260);
  EXPECT_EQ(text.Find(name + "_bucket", Job({{"le", "5"}})), 274);
  EXPECT_EQ(text.Find("freshet_trained_tokens_at_bound_total", Job()), 14);
  EXPECT_EQ(text.Find("freshet_replayed_samples_total", Job()), 6);
}

TEST(TrainingMetricsAges, HaveTheBoundAsAnEdgeAndAreFew) {
  const std::string name = "freshet_trajectory_staleness_versions_bucket";
  for (const int64_t bound : {0, 1, 2, 5, 9, 12, 16, 17, 24, 33, 1024}) {
    prometheus::Registry registry;
    TrainingMetrics metrics(registry, "a", WithBound(bound));
    StepMetrics step;
    step.staleness_tokens[bound] = 3;
    if (bound > 0) step.staleness_tokens[bound - 1] = 4;
    if (bound > 1) step.staleness_tokens[0] = 5;
    metrics.OnStep(step);
    const MetricsText text = Scrape(registry);
    EXPECT_THAT(text.problems(), IsEmpty());
    const auto younger_or_as_old = [&](int64_t age) {
      return text.Find(name, {{"job", "a"}, {"le", StrCat(age)}});
    };
    const double all = bound > 1 ? 12 : bound > 0 ? 7 : 3;
    EXPECT_EQ(younger_or_as_old(bound), all) << bound;
    if (bound > 0) {
      EXPECT_EQ(younger_or_as_old(bound - 1), all - 3) << bound;
    }
    EXPECT_EQ(text.Find("freshet_trained_tokens_at_bound_total", {{"job", "a"}}), 3) << bound;
    // The edges that the dashboard panel sums up.
    int64_t edges = 0;
    for (const int64_t age : {0, 1, 2, 3, 4, 6, 8, 12, 16}) {
      EXPECT_TRUE(younger_or_as_old(age).has_value()) << bound << ", " << age;
    }
    for (int64_t age = 0; age <= 2048; ++age) edges += younger_or_as_old(age).has_value() ? 1 : 0;
    EXPECT_LE(edges, 17) << bound;
  }
}

TEST_F(TrainingMetricsTest, PhasesAddUpToTheStep) {
  StepMetrics step;
  step.trainer_wait_seconds = 2;
  step.train_seconds = 3;
  step.optimizer_seconds = 0.5;
  step.checkpoint_seconds = 0.25;
  step.step_seconds = 7;
  metrics_.OnStep(step);
  const MetricsText text = Scraped();
  const auto seconds = [&](const char* phase) {
    return text.Find("freshet_step_phase_seconds_sum", Job({{"phase", phase}}));
  };
  EXPECT_EQ(seconds("wait"), 2);
  EXPECT_EQ(seconds("compute"), 2.5);
  EXPECT_EQ(seconds("optimizer"), 0.5);
  EXPECT_EQ(seconds("checkpoint"), 0.25);
  EXPECT_EQ(seconds("other"), 1.75);
  EXPECT_EQ(text.Sum("freshet_step_phase_seconds_sum"), 7);
}

TEST_F(TrainingMetricsTest, WaitingGrowsBeforeTheStepEnds) {
  metrics_.OnWaiting(3);
  EXPECT_EQ(Scraped().Find("freshet_trainer_wait_seconds_total", Job()), 3);
  metrics_.OnWaiting(0);  // training
  StepMetrics step;
  step.trainer_wait_seconds = 4;
  metrics_.OnStep(step);
  EXPECT_EQ(Scraped().Find("freshet_trainer_wait_seconds_total", Job()), 4);
  metrics_.OnWaiting(0.5);
  EXPECT_EQ(Scraped().Find("freshet_trainer_wait_seconds_total", Job()), 4.5);
}

TEST_F(TrainingMetricsTest, ObservesEverySample) {
  BatchStats stats;
  stats.rewards = {1, 0, -0.5};
  stats.completion_tokens = {4, 17, 4};
  stats.version_spans = {1, 1, 2};
  stats.solved_some = 1;
  metrics_.OnBatch(stats);
  const MetricsText text = Scraped();
  EXPECT_EQ(text.Find("freshet_reward_sum", Job({{"environment", "none"}})), 0.5);
  EXPECT_EQ(text.Find("freshet_completion_tokens_bucket", Job({{"le", "4"}})), 2);
  EXPECT_EQ(text.Find("freshet_trajectory_version_spans_bucket", Job({{"le", "1"}})), 2);
  EXPECT_EQ(text.Find("freshet_group_solved_total", Job({{"outcome", "some"}})), 1);
}

TEST_F(TrainingMetricsTest, ADivergenceFromAReferenceIsShownWhereThereIsOne) {
  StepMetrics step;
  step.kl_behavior = 0.25;
  metrics_.OnStep(step);
  const auto kl = [this](const char* kind) {
    return Scraped().Find("freshet_policy_kl_nats", Job({{"kind", kind}}));
  };
  EXPECT_EQ(kl("behavior"), 0.25);
  EXPECT_FALSE(kl("reference").has_value());
  step.kl_ref = 0.5;
  metrics_.OnStep(step);
  EXPECT_EQ(kl("reference"), 0.5);
}

TEST_F(TrainingMetricsTest, ShowsTheDistanceToTheSamplingPolicyAndTheWork) {
  StepMetrics step;
  step.logprob_diff = 0.125;
  step.model_flops = 1e9;
  metrics_.OnStep(step);
  metrics_.OnStep(step);
  const MetricsText text = Scraped();
  EXPECT_EQ(text.Find("freshet_logprob_diff", Job()), 0.125);
  EXPECT_EQ(text.Find("freshet_model_flops_total", Job()), 2e9);
  EXPECT_EQ(text.Find("freshet_importance_ratio_count", Job()), 0);
}

TEST_F(TrainingMetricsTest, ARedoneStepMovesTheVersionOnly) {
  metrics_.OnVersion(7);
  const MetricsText text = Scraped();
  EXPECT_EQ(text.Find("freshet_weight_version", Job({{"role", "trainer"}})), 7);
  EXPECT_EQ(text.Find("freshet_steps_total", Job()), 0);
}

TEST(SummarizeBatch, CountsGroupsByTheirSolvedSamples) {
  const auto sample = [](double reward, size_t tokens) {
    TrainSample made;
    auto response = std::make_shared<Response>();
    response->response_ids.resize(tokens);
    response->spans = {{{0, 1}, 0, 1}, {{0, 2}, 1, 2}};
    auto score = std::make_shared<Score>();
    score->reward = reward;
    made.sample.response = response;
    made.sample.score = score;
    made.sample.prompt = std::make_shared<Prompt>();
    return made;
  };
  TrainGroup all, some, none;
  all.samples = {sample(1, 3), sample(0.1 + 0.7 + 0.2, 2)};
  some.samples = {sample(1, 1), sample(0.9, 1)};
  none.samples = {sample(-1, 1), sample(0, 5)};
  const BatchStats stats = SummarizeBatch({all, some, none}, {{"", 1}});
  EXPECT_EQ(stats.solved_all, 1);
  EXPECT_EQ(stats.solved_some, 1);
  EXPECT_EQ(stats.solved_none, 1);
  EXPECT_THAT(stats.completion_tokens, testing::ElementsAre(3, 2, 1, 1, 1, 5));
  EXPECT_THAT(stats.version_spans, testing::Each(2));
  EXPECT_EQ(stats.rewards.size(), 6U);
  MakeNotAsked(none.samples[1]);
  const BatchStats asked = SummarizeBatch({none}, {{"", 1}});
  EXPECT_THAT(asked.rewards, testing::ElementsAre(-1, 0));
  EXPECT_THAT(asked.completion_tokens, testing::ElementsAre(1));
  EXPECT_THAT(asked.version_spans, testing::ElementsAre(2));
  auto easy = std::make_shared<Prompt>();
  easy->attributes["task"] = "easy";
  for (TrainSample& made : some.samples) made.sample.prompt = easy;
  EXPECT_EQ(SummarizeBatch({some}, {{"", 1}, {"easy", 0.9}}).solved_all, 1);
}

}  // namespace
}  // namespace freshet
