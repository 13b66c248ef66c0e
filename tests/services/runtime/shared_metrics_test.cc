// Metrics adapters used by several roles.

#include <prometheus/registry.h>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/runtime/gpu_memory_metrics.h"
#include "services/runtime/queue_metrics.h"
#include "services/runtime/series.h"
#include "services/runtime/stats_by_job.h"
#include "tests/testing/registry_text.h"
#include "weights/grpc/weight_sync_metrics.h"

namespace freshet::metrics {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Key;

TEST(Series, IsRemovedWithItsObject) {
  prometheus::Registry registry;
  Counters& family = CounterFamily(registry, "freshet_steps_total", "Steps.");
  {
    CounterSeries a(family, {{"job", "a"}});
    CounterSeries b(family, {{"job", "b"}});
    b = CounterSeries(family, {{"job", "c"}});
    a->Increment();
    const MetricsText text = Scrape(registry);
    EXPECT_EQ(text.Find("freshet_steps_total", {{"job", "a"}}), 1);
    EXPECT_FALSE(text.Find("freshet_steps_total", {{"job", "b"}}).has_value());
    EXPECT_EQ(text.Find("freshet_steps_total", {{"job", "c"}}), 0);
  }
  EXPECT_FALSE(Scrape(registry).Has("freshet_steps_total"));
}

TEST(RaiseTo, NeverLowersACounter) {
  prometheus::Counter counter;
  RaiseTo(counter, 3);
  RaiseTo(counter, 2);
  EXPECT_EQ(counter.Value(), 3);
  RaiseTo(counter, 3.5);
  EXPECT_EQ(counter.Value(), 3.5);
}

TEST(GpuMemoryMetrics, ShowsTheGpusThatTheProcessUses) {
  prometheus::Registry registry;
  std::vector<GpuMemory> gpus;
  GpuMemoryMetrics shown(registry, [&] { return gpus; });
  shown.Refresh();
  EXPECT_FALSE(Scrape(registry).Has("freshet_gpu_memory_total_bytes"));
  gpus = {{"cuda:0", 100, 60, 30, 40}, {"cuda:1", 200, 60, 3, 4}};
  shown.Refresh();
  gpus[0].free_bytes = 50;
  shown.Refresh();
  const MetricsText text = Scrape(registry);
  EXPECT_EQ(text.Find("freshet_gpu_memory_total_bytes", {{"device", "cuda:0"}}), 100);
  EXPECT_EQ(text.Find("freshet_gpu_memory_free_bytes", {{"device", "cuda:0"}}), 50);
  EXPECT_EQ(text.Find("freshet_gpu_memory_allocated_bytes", {{"device", "cuda:0"}}), 30);
  EXPECT_EQ(text.Find("freshet_gpu_memory_reserved_bytes", {{"device", "cuda:0"}}), 40);
  EXPECT_EQ(text.Find("freshet_gpu_memory_total_bytes", {{"device", "cuda:1"}}), 200);
  EXPECT_THAT(text.problems(), IsEmpty());
}

TEST(GpuMemoryMetrics, ShowsNothingWithoutAReader) {
  prometheus::Registry registry;
  GpuMemoryMetrics shown(registry, nullptr);
  shown.Refresh();
  EXPECT_TRUE(registry.Collect().empty());
}

TEST(QueueMetrics, ShowsDepthAndBound) {
  prometheus::Registry registry;
  QueueMetrics queues(registry);
  int64_t depth = 2;
  queues.Watch("calls", 64, [&depth] { return depth; });
  queues.Refresh();
  depth = 5;
  EXPECT_EQ(Scrape(registry).Find("freshet_queue_entries", {{"queue", "calls"}}), 2);
  queues.Refresh();
  const MetricsText text = Scrape(registry);
  EXPECT_EQ(text.Find("freshet_queue_entries", {{"queue", "calls"}}), 5);
  EXPECT_EQ(text.Find("freshet_queue_bound_entries", {{"queue", "calls"}}), 64);
  EXPECT_THAT(text.problems(), IsEmpty());
}

TEST(WeightSyncMetrics, CountsPhasesBytesAndFailures) {
  prometheus::Registry registry;
  WeightSyncMetrics sync(registry);
  MetricsText text = Scrape(registry);
  EXPECT_EQ(text.Find("freshet_weight_sync_failures_total", {{"cause", "timeout"}}), 0);
  sync.OnPhase(WeightPhase::kTransfer, absl::Milliseconds(30));
  sync.OnPhase(WeightPhase::kTransfer, absl::Milliseconds(50));
  sync.OnBytes(1000);
  sync.OnDelta(500, 80);
  sync.OnFailure("timeout");
  sync.OnFailure("something new");
  text = Scrape(registry);
  EXPECT_THAT(text.problems(), IsEmpty());
  EXPECT_EQ(text.Find("freshet_weight_sync_seconds_count", {{"phase", "transfer"}}), 2);
  EXPECT_NEAR(*text.Find("freshet_weight_sync_seconds_sum", {{"phase", "transfer"}}), 0.08, 1e-9);
  EXPECT_EQ(text.Find("freshet_weight_sync_seconds_count", {{"phase", "verify"}}), 0);
  EXPECT_EQ(text.Find("freshet_weight_sync_bytes_total"), 1000);
  EXPECT_EQ(text.Find("freshet_weight_delta_bytes_total"), 500);
  EXPECT_EQ(text.Find("freshet_weight_delta_sent_bytes_total"), 80);
  EXPECT_EQ(text.Find("freshet_weight_sync_failures_total", {{"cause", "timeout"}}), 1);
  EXPECT_EQ(text.Find("freshet_weight_sync_failures_total", {{"cause", "other"}}), 1);
}

TEST(WeightSyncMetrics, TimesTheMembersOfAJobByRoute) {
  prometheus::Registry registry;
  WeightSyncMetrics sync(registry);
  EXPECT_FALSE(Scrape(registry).Has("freshet_weight_member_seconds_count"));
  sync.OnMembers("a", "grpc_relay", {absl::Seconds(1), absl::Seconds(8), absl::Seconds(2)});
  sync.OnMembers("a", "grpc_relay", {absl::Seconds(4), absl::Seconds(2)});
  sync.OnMembers("a", "shm", {absl::Seconds(1)});
  const MetricsText text = Scrape(registry);
  EXPECT_THAT(text.problems(), IsEmpty());
  const MetricLabels chain = {{"job", "a"}, {"route", "grpc_relay"}};
  EXPECT_EQ(text.Find("freshet_weight_member_seconds_count", chain), 5);
  EXPECT_EQ(text.Find("freshet_weight_member_seconds_sum", chain), 17);
  EXPECT_EQ(text.Find("freshet_weight_slowest_member_seconds_total", chain), 12);
  EXPECT_EQ(text.Find("freshet_weight_publications_total", chain), 2);
  EXPECT_EQ(text.Find("freshet_weight_member_seconds_count", {{"job", "a"}, {"route", "shm"}}), 1);
}

TEST(WeightSyncMetrics, KeepsTheJobsThatPublishedLast) {
  prometheus::Registry registry;
  WeightSyncMetrics sync(registry);
  const auto shown = [&registry](const std::string& job) {
    return Scrape(registry).Find("freshet_weight_publications_total",
                                 {{"job", job}, {"route", "shm"}});
  };
  for (size_t i = 0; i <= kKeptJobs; ++i) sync.OnMembers(StrCat(i), "shm", {absl::Seconds(1)});
  EXPECT_EQ(shown("0"), 1);
  sync.OnMembers("0", "shm", {absl::Seconds(1)});  // still a member
  sync.OnMembers("new", "shm", {absl::Seconds(1)});
  EXPECT_EQ(shown("0"), 2);
  EXPECT_EQ(shown("new"), 1);
  EXPECT_FALSE(shown("1").has_value());
  EXPECT_EQ(Scrape(registry).Sum("freshet_weight_publications_total"),
            static_cast<double>(kKeptJobs + 2));
}

struct Figures {
  int64_t done = 0;
  int64_t running = 0;
  void Add(const Figures& other) {
    done += other.done;
    running += other.running;
  }
  void ClearGauges() { running = 0; }
};

TEST(StatsByJob, CountersGoOnWhenAWorkFollowsAnother) {
  StatsByJob<Figures> stats_by_job(2);
  const int64_t first = stats_by_job.Begin("a", [] { return Figures{10, 3}; });
  EXPECT_EQ(stats_by_job.Take().at("a").done, 10);
  EXPECT_EQ(stats_by_job.Take().at("a").running, 3);
  stats_by_job.End(first);
  EXPECT_EQ(stats_by_job.Take().at("a").done, 10);
  EXPECT_EQ(stats_by_job.Take().at("a").running, 0);
  stats_by_job.Begin("a", [] { return Figures{1, 4}; });
  EXPECT_EQ(stats_by_job.Take().at("a").done, 11);
  EXPECT_EQ(stats_by_job.Take().at("a").running, 4);
}

TEST(StatsByJob, AddsUpWorksOfOneJob) {
  StatsByJob<Figures> stats_by_job(2);
  const int64_t one = stats_by_job.Begin("a", [] { return Figures{10, 1}; });
  stats_by_job.Begin("a", [] { return Figures{5, 1}; });
  EXPECT_EQ(stats_by_job.Take().at("a").done, 15);
  stats_by_job.End(one);
  EXPECT_EQ(stats_by_job.Take().at("a").done, 15);
  EXPECT_EQ(stats_by_job.Take().at("a").running, 1);
}

TEST(StatsByJob, KeepsTheLastJobsOnly) {
  StatsByJob<Figures> stats_by_job(2);
  stats_by_job.Begin("busy", [] { return Figures{}; });
  for (const char* job : {"a", "b", "a", "c"}) {
    stats_by_job.End(stats_by_job.Begin(job, [] { return Figures{1, 0}; }));
  }
  EXPECT_THAT(stats_by_job.Take(), ElementsAre(Key("a"), Key("busy"), Key("c")));
  EXPECT_EQ(stats_by_job.Take().at("a").done, 2);
}

}  // namespace
}  // namespace freshet::metrics
