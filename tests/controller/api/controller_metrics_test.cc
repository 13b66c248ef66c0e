#include "controller/api/controller_metrics.h"

#include <prometheus/registry.h>

#include <string>
#include <vector>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/registry_text.h"

namespace freshet {
namespace {

using testing::IsEmpty;

class ControllerMetricsTest : public testing::Test {
 protected:
  MetricsText Scraped() {
    MetricsText text = Scrape(*registry_);
    EXPECT_THAT(text.problems(), IsEmpty());
    return text;
  }
  static JobGauges Gauges(const std::string& id) {
    JobGauges gauges;
    gauges.id = id;
    gauges.name = "tiny";
    gauges.state = job::v1::JOB_STATE_RUNNING;
    gauges.staleness_bound = 2;
    gauges.last_step = absl::FromUnixSeconds(1000);
    gauges.group_size = 4;
    gauges.capacity_groups = 100;
    gauges.max_queued_prompts = 64;
    gauges.max_in_flight_groups = 8;
    gauges.has_stats = true;
    gauges.oldest.fill(absl::InfiniteFuture());
    return gauges;
  }

  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  ControllerMetrics metrics_{registry_, nullptr};
};

TEST_F(ControllerMetricsTest, ShowsGroupsSamplesAgesAndBounds) {
  JobGauges gauges = Gauges("a");
  const auto ready = static_cast<size_t>(GroupState::kReady);
  gauges.stats.groups[ready] = 3;
  gauges.stats.transitions[ready] = 10;
  gauges.stats.time_in_state[ready] = absl::Seconds(70);
  gauges.stats.queued_prompts = 12;
  gauges.stats.capacity_used = 40;
  gauges.stats.running = 5;
  gauges.oldest[ready] = absl::FromUnixSeconds(900);
  metrics_.OnJob(gauges);
  const MetricsText text = Scraped();
  const MetricLabels labels = {{"job", "a"}, {"state", "ready"}};
  EXPECT_EQ(text.Find("freshet_buffer_groups", labels), 3);
  EXPECT_EQ(text.Find("freshet_buffer_trajectories", labels), 12);
  EXPECT_EQ(text.Find("freshet_buffer_oldest_timestamp_seconds", labels), 900);
  EXPECT_EQ(
      text.Find("freshet_buffer_oldest_timestamp_seconds", {{"job", "a"}, {"state", "leased"}}), 0);
  EXPECT_EQ(text.Find("freshet_groups_entered_total", labels), 10);
  EXPECT_EQ(text.Find("freshet_group_state_seconds_total", labels), 70);
  const auto queue = [&text](const char* name, const char* which) {
    return text.Find(name, {{"job", "a"}, {"queue", which}});
  };
  EXPECT_EQ(queue("freshet_job_queue_entries", "prompts"), 12);
  EXPECT_EQ(queue("freshet_job_queue_bound_entries", "prompts"), 64);
  EXPECT_EQ(queue("freshet_job_queue_entries", "groups"), 40);
  EXPECT_EQ(queue("freshet_job_queue_bound_entries", "groups"), 100);
  EXPECT_EQ(queue("freshet_job_queue_entries", "groups_in_flight"), 5);
  EXPECT_EQ(text.Find("freshet_staleness_bound_versions", {{"job", "a"}}), 2);
  EXPECT_EQ(text.Find("freshet_last_step_timestamp_seconds", {{"job", "a"}}), 1000);
}

TEST_F(ControllerMetricsTest, ShowsTheCallsOfComponentsWithALimit) {
  JobGauges gauges = Gauges("a");
  gauges.max_calls = {{"judge", 5000}, {"model", 7}};
  gauges.stats.calls = {{"judge", 12, 0}};
  metrics_.OnJob(gauges);
  metrics_.OnJob(gauges);
  const MetricsText text = Scraped();
  const auto of = [&text](const char* name, const char* component) {
    return text.Find(name, {{"job", "a"}, {"component", component}});
  };
  EXPECT_EQ(of("freshet_reward_calls_total", "judge"), 12);
  EXPECT_EQ(of("freshet_reward_bound_calls", "judge"), 5000);
  EXPECT_EQ(of("freshet_reward_calls_total", "model"), 0);
  EXPECT_EQ(of("freshet_reward_bound_calls", "model"), 7);
}

TEST_F(ControllerMetricsTest, EstimatesTheBytesOfWhatIsHeld) {
  JobGauges gauges = Gauges("a");
  gauges.stats.groups[static_cast<size_t>(GroupState::kReady)] = 3;
  gauges.stats.groups[static_cast<size_t>(GroupState::kTrained)] = 2;
  gauges.stats.groups[static_cast<size_t>(GroupState::kQueued)] = 50;
  gauges.stats.groups[static_cast<size_t>(GroupState::kDurable)] = 70;
  gauges.stats.trained_samples = 8;
  gauges.stats.trained_tokens = 700;
  gauges.stats.discarded_samples = 2;
  gauges.stats.discarded_tokens = 300;
  gauges.stats.running = 5;
  gauges.stats.queued_prompts = 12;
  metrics_.OnJob(gauges);
  const MetricsText text = Scraped();
  EXPECT_EQ(text.Find("freshet_buffer_bytes", {{"job", "a"}}), 5 * 4 * (150 + 8 * 100));
  EXPECT_EQ(text.Find("freshet_stream_pending_entries", {{"job", "a"}}), 5);
  EXPECT_EQ(text.Find("freshet_stream_lag_entries", {{"job", "a"}}), 12);
  metrics_.OnJobGone("a");
  EXPECT_FALSE(Scraped().Has("freshet_buffer_bytes"));
}

TEST_F(ControllerMetricsTest, CountsTheSamplesThatSmallerGroupsHave) {
  JobGauges gauges = Gauges("a");
  constexpr auto kReady = static_cast<size_t>(GroupState::kReady);
  gauges.stats.groups[kReady] = 3;
  gauges.stats.skipped[kReady] = 5;
  gauges.stats.ended_by_reason = {{"filtered(too_easy)", 2}};
  gauges.stats.skipped_by_reason = {{"filtered(too_easy)", 4}};
  metrics_.OnJob(gauges);
  const MetricsText text = Scraped();
  EXPECT_EQ(text.Find("freshet_buffer_trajectories", {{"job", "a"}, {"state", "ready"}}), 7);
  EXPECT_EQ(text.Find("freshet_buffer_bytes", {{"job", "a"}}), 7 * 150);
  EXPECT_EQ(text.Find("freshet_trajectories_dropped_total", {{"job", "a"}, {"reason", "filtered"}}),
            4);
}

TEST_F(ControllerMetricsTest, CountsDroppedSamplesByReason) {
  JobGauges gauges = Gauges("a");
  metrics_.OnJob(gauges);
  const auto dropped = [](const MetricsText& text, const char* reason) {
    return text.Find("freshet_trajectories_dropped_total", {{"job", "a"}, {"reason", reason}});
  };
  EXPECT_EQ(dropped(Scraped(), "stale"), 0);  // exported as 0 before the first drop
  EXPECT_EQ(Scraped().Find("freshet_groups_ended_total", {{"job", "a"}, {"reason", "dead"}}), 0);
  gauges.stats.ended_by_reason = {{"dropped(too_old)", 2},        {"dead(too_slow)", 1},
                                  {"dead(no GPU: 17 of)", 3},     {"dead(no GPU: 18 of)", 1},
                                  {"filtered(zero_variance)", 5}, {"dropped(corrupt)", 1},
                                  {"dropped(orphaned)", 2}};
  gauges.stats.duplicate_puts = 7;
  gauges.stats.replayed_samples = 6;
  gauges.stats.pooled_successes = 4;
  gauges.stats.skipped_samples = 11;
  gauges.stats.limited_groups = 8;
  gauges.stats.fenced_puts = 9;
  metrics_.OnJob(gauges);
  metrics_.OnJob(gauges);  // repeating the gauges must not count twice
  const MetricsText text = Scraped();
  EXPECT_EQ(dropped(text, "stale"), 12);
  EXPECT_EQ(dropped(text, "error"), 20);
  EXPECT_EQ(dropped(text, "filtered"), 20);
  EXPECT_EQ(dropped(text, "cancelled"), 17);
  EXPECT_EQ(dropped(text, "duplicate"), 7);
  EXPECT_EQ(dropped(text, "replaced"), 6);
  EXPECT_EQ(text.Find("freshet_pooled_successes", {{"job", "a"}}), 4);
  EXPECT_EQ(text.Find("freshet_skipped_samples_total", {{"job", "a"}}), 11);
  EXPECT_EQ(text.Find("freshet_limited_groups_total", {{"job", "a"}}), 8);
  // A scorer's text must not become a label value.
  EXPECT_EQ(text.Find("freshet_groups_ended_total", {{"job", "a"}, {"reason", "dead"}}), 5);
  EXPECT_EQ(text.Find("freshet_groups_ended_total", {{"job", "a"}, {"reason", "dropped(too_old)"}}),
            2);
}

TEST_F(ControllerMetricsTest, NamesTheEdgeOfAStalledJob) {
  JobGauges gauges = Gauges("a");
  gauges.blocking_edge = "reward";
  gauges.stalled_for = absl::Seconds(9);
  metrics_.OnJob(gauges);
  MetricsText text = Scraped();
  EXPECT_EQ(text.Find("freshet_job_blocking_edge", {{"job", "a"}, {"edge", "reward"}}), 1);
  EXPECT_EQ(text.Sum("freshet_job_blocking_edge"), 1);
  EXPECT_EQ(text.Find("freshet_job_stalled_seconds", {{"job", "a"}}), 9);
  metrics_.OnJob(Gauges("a"));
  text = Scraped();
  EXPECT_EQ(text.Sum("freshet_job_blocking_edge"), 0);
  EXPECT_EQ(text.Find("freshet_job_stalled_seconds", {{"job", "a"}}), 0);
}

TEST_F(ControllerMetricsTest, CountsTheFailuresOfWorkers) {
  const auto failures = [this](const char* role) {
    return Scraped().Find("freshet_work_failures_total", {{"role", role}});
  };
  EXPECT_EQ(failures("rollout"), 0);
  metrics_.OnWorkFailed(cluster::v1::ROLE_ROLLOUT);
  EXPECT_EQ(failures("rollout"), 1);
  EXPECT_EQ(failures("reward"), 0);
}

TEST_F(ControllerMetricsTest, CountsTheEndsOfJobs) {
  const auto ended = [this](const char* state) {
    return Scraped().Find("freshet_jobs_ended_total", {{"state", state}});
  };
  for (const char* state : {"SUCCEEDED", "FAILED", "CANCELLED"}) EXPECT_EQ(ended(state), 0);
  metrics_.OnJobEnded(job::v1::JOB_STATE_FAILED);
  metrics_.OnJobEnded(job::v1::JOB_STATE_FAILED);
  metrics_.OnJobEnded(job::v1::JOB_STATE_SUCCEEDED);
  metrics_.OnLeading(false);  // counters survive the loss of leadership
  EXPECT_EQ(ended("SUCCEEDED"), 1);
  EXPECT_EQ(ended("FAILED"), 2);
  EXPECT_EQ(ended("CANCELLED"), 0);
}

TEST_F(ControllerMetricsTest, OneSeriesPerPoolCarriesTheWantedNumber) {
  const auto pool = [](const char* name, int32_t ready, int32_t wanted, ScalingReason reason) {
    PoolStats stats;
    stats.pool = name;
    stats.ready = ready;
    stats.wanted = wanted;
    stats.reason = reason;
    return stats;
  };
  const auto wanted = [this](const char* name) {
    return Scraped().Sum("freshet_rollout_wanted_replicas", {{"pool", name}});
  };
  const auto ready = [this](const char* name) {
    return Scraped().Find("freshet_pool_ready_workers", {{"pool", name}});
  };
  metrics_.OnPools({pool("a", 2, 4, ScalingReason::kTrainerWaits)});
  EXPECT_FALSE(wanted("a").has_value()) << "it does not lead";
  metrics_.OnLeading(true);
  metrics_.OnPools(
      {pool("a", 2, 4, ScalingReason::kTrainerWaits), pool("b", 1, 1, ScalingReason::kFixed)});
  EXPECT_EQ(Scraped().Find("freshet_rollout_wanted_replicas",
                           {{"pool", "a"}, {"reason", "trainer_waits"}}),
            4);
  EXPECT_EQ(ready("a"), 2);
  metrics_.OnPools({pool("a", 4, 3, ScalingReason::kEnginesIdle)});
  EXPECT_EQ(Scraped().Find("freshet_rollout_wanted_replicas",
                           {{"pool", "a"}, {"reason", "engines_idle"}}),
            3);
  EXPECT_EQ(wanted("a"), 3) << "the former reason has no series any more";
  EXPECT_FALSE(wanted("b").has_value()) << "nobody names it any more";
  EXPECT_FALSE(ready("b").has_value());
  metrics_.OnLeading(false);
  metrics_.OnPools({pool("a", 4, 3, ScalingReason::kEnginesIdle)});
  EXPECT_FALSE(Scraped().Has("freshet_rollout_wanted_replicas"));
  EXPECT_FALSE(ready("a").has_value());
  metrics_.OnLeading(true);
  metrics_.OnPools({pool("a", 4, 3, ScalingReason::kEnginesIdle)});
  EXPECT_EQ(ready("a"), 4);
}

TEST_F(ControllerMetricsTest, PoolsThatNobodyNamesMakeRoomForOthers) {
  metrics_.OnLeading(true);
  const auto name = [this](int first, int pools) {
    std::vector<PoolStats> all;
    for (int i = first; i < first + pools; ++i) {
      all.emplace_back();
      all.back().pool = StrCat("pool-", i);
      all.back().ready = 1;
    }
    metrics_.OnPools(all);
    return Scraped();
  };
  MetricsText text = name(0, 120);
  EXPECT_EQ(text.Sum("freshet_pool_ready_workers"), 100);
  EXPECT_FALSE(text.Find("freshet_pool_ready_workers", {{"pool", "pool-119"}}).has_value());
  text = name(118, 60);
  EXPECT_EQ(text.Sum("freshet_pool_ready_workers"), 60);
  EXPECT_EQ(text.Find("freshet_pool_ready_workers", {{"pool", "pool-119"}}), 1);
  EXPECT_TRUE(text.Sum("freshet_rollout_wanted_replicas", {{"pool", "pool-177"}}).has_value());
}

TEST_F(ControllerMetricsTest, AJobThatIsGoneLeavesNoSeries) {
  metrics_.OnJob(Gauges("a"));
  metrics_.OnJob(Gauges("b"));
  EXPECT_EQ(Scraped().Find("freshet_job_state", {{"job", "a"}, {"state", "RUNNING"}}), 1);
  metrics_.OnJobGone("a");
  EXPECT_FALSE(Scraped().Sum("freshet_job_state", {{"job", "a"}}).has_value());
  EXPECT_TRUE(Scraped().Sum("freshet_job_state", {{"job", "b"}}).has_value());
  metrics_.OnLeading(false);
  EXPECT_FALSE(Scraped().Has("freshet_job_state"));
  EXPECT_EQ(Scraped().Find("freshet_controller_leading"), 0);
}

}  // namespace
}  // namespace freshet
