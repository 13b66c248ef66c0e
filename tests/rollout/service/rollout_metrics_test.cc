#include "rollout/service/rollout_metrics.h"

#include <prometheus/registry.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/registry_text.h"

namespace freshet {
namespace {

using testing::IsEmpty;

RolloutStats MakeStats() {
  RolloutStats stats;
  stats.counters.idle_seconds = 1.5;
  stats.counters.tokens_generated = 1000;
  stats.counters.samples_finished = 40;
  stats.counters.unsent_samples = 3;
  stats.counters.engine.tokens_prefilled = 200;
  stats.counters.engine.tokens_reused = 60;
  stats.counters.engine.tokens_drafted = 9;
  stats.counters.engine.tokens_accepted = 6;
  stats.counters.engine.preemptions = 5;
  stats.counters.engine.servers_down = 1;
  stats.counters.engine.server_restarts = 2;
  stats.counters.engine.cache_blocks = 100;
  stats.counters.engine.cache_blocks_free = 25;
  stats.counters.episodes.terminated = 4;
  stats.counters.episodes.not_asked = 3;
  stats.counters.episodes.truncated_by[EpisodeLimit::kCost] = 2;
  stats.version = 7;
  stats.max_unsent_samples = 4096;
  return stats;
}

TEST(RolloutMetrics, ShowsWhatAWorkSays) {
  prometheus::Registry registry;
  RolloutMetrics metrics(registry);
  metrics.Show({{"a", MakeStats()}});
  const MetricsText text = Scrape(registry);
  EXPECT_THAT(text.problems(), IsEmpty());
  EXPECT_EQ(text.Find("freshet_rollout_idle_seconds_total", {{"job", "a"}}), 1.5);
  EXPECT_EQ(text.Find("freshet_tokens_total", {{"job", "a"}, {"phase", "generated"}}), 1000);
  EXPECT_EQ(text.Find("freshet_tokens_total", {{"job", "a"}, {"phase", "prompt"}}), 200);
  EXPECT_EQ(text.Find("freshet_tokens_total", {{"job", "a"}, {"phase", "reused"}}), 60);
  EXPECT_EQ(text.Find("freshet_rollout_samples_total", {{"job", "a"}, {"outcome", "put"}}), 40);
  EXPECT_EQ(text.Find("freshet_rollout_samples_total", {{"job", "a"}, {"outcome", "fenced"}}), 0);
  EXPECT_EQ(text.Find("freshet_rollout_unsent_samples", {{"job", "a"}}), 3);
  EXPECT_EQ(text.Find("freshet_rollout_unsent_bound_samples", {{"job", "a"}}), 4096);
  EXPECT_EQ(
      text.Find("freshet_rollout_draft_tokens_total", {{"job", "a"}, {"outcome", "accepted"}}), 6);
  EXPECT_EQ(
      text.Find("freshet_rollout_draft_tokens_total", {{"job", "a"}, {"outcome", "rejected"}}), 3);
  EXPECT_EQ(text.Find("freshet_rollout_preemptions_total", {{"job", "a"}}), 5);
  EXPECT_EQ(text.Find("freshet_rollout_engine_down", {{"job", "a"}}), 1);
  EXPECT_EQ(text.Find("freshet_rollout_engine_restarts_total", {{"job", "a"}}), 2);
  EXPECT_EQ(text.Find("freshet_kv_cache_used_ratio", {{"job", "a"}}), 0.75);
  EXPECT_EQ(text.Find("freshet_weight_version", {{"job", "a"}, {"role", "rollout"}}), 7);
  EXPECT_EQ(
      text.Find("freshet_rollout_truncated_episodes_total", {{"job", "a"}, {"limit", "cost"}}), 2);
  EXPECT_EQ(
      text.Find("freshet_rollout_truncated_episodes_total", {{"job", "a"}, {"limit", "turns"}}), 0);
  EXPECT_EQ(text.Find("freshet_rollout_not_asked_episodes_total", {{"job", "a"}}), 3);
  EXPECT_EQ(text.Find("freshet_rollout_episodes_total", {{"job", "a"}, {"outcome", "terminated"}}),
            4);
}

TEST(RolloutMetrics, CountersFollowTheBoard) {
  prometheus::Registry registry;
  RolloutMetrics metrics(registry);
  RolloutStatsByJob stats_by_job(1);
  stats_by_job.End(stats_by_job.Begin("a", MakeStats));
  metrics.Show(stats_by_job.Take());
  stats_by_job.Begin("a", MakeStats);
  metrics.Show(stats_by_job.Take());
  const MetricsText text = Scrape(registry);
  EXPECT_EQ(text.Find("freshet_rollout_idle_seconds_total", {{"job", "a"}}), 3);
  EXPECT_EQ(text.Find("freshet_rollout_unsent_samples", {{"job", "a"}}), 3);
}

TEST(RolloutMetrics, AWorkThatHasEndedHoldsNothing) {
  prometheus::Registry registry;
  RolloutMetrics metrics(registry);
  RolloutStatsByJob stats_by_job(1);
  const int64_t work = stats_by_job.Begin("a", MakeStats);
  metrics.Show(stats_by_job.Take());
  stats_by_job.End(work);
  metrics.Show(stats_by_job.Take());
  const MetricsText text = Scrape(registry);
  EXPECT_EQ(text.Find("freshet_rollout_unsent_samples", {{"job", "a"}}), 0);
  EXPECT_EQ(text.Find("freshet_kv_cache_used_ratio", {{"job", "a"}}), 0);
  EXPECT_EQ(text.Find("freshet_rollout_engine_down", {{"job", "a"}}), 0);
  EXPECT_EQ(text.Find("freshet_rollout_idle_seconds_total", {{"job", "a"}}), 1.5);
}

TEST(RolloutMetrics, ForgottenJobsLeaveNoSeries) {
  prometheus::Registry registry;
  RolloutMetrics metrics(registry);
  metrics.Show({{"a", MakeStats()}, {"b", MakeStats()}});
  metrics.Show({{"b", MakeStats()}});
  const MetricsText text = Scrape(registry);
  EXPECT_FALSE(text.Sum("freshet_tokens_total", {{"job", "a"}}).has_value());
  EXPECT_TRUE(text.Sum("freshet_tokens_total", {{"job", "b"}}).has_value());
}

}  // namespace
}  // namespace freshet
