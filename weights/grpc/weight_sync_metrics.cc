#include "weights/grpc/weight_sync_metrics.h"

#include <algorithm>
#include <utility>

namespace freshet::metrics {
namespace {

// All values of WeightFailureCause, and "group".
constexpr const char* kCauses[] = {"refused",  "corrupt",   "timeout", "unavailable",
                                   "departed", "no_memory", "group",   "other"};

}  // namespace

WeightSyncMetrics::WeightSyncMetrics(prometheus::Registry& registry)
    : bytes_(CounterFamily(registry, "freshet_weight_sync_bytes_total",
                           "Bytes of weights that this process sent; shared memory not counted.")
                 .Add({})),
      delta_bytes_(CounterFamily(registry, "freshet_weight_delta_bytes_total",
                                 "Bytes of versions that this process sent to another site, as "
                                 "differences where they are smaller.")
                       .Add({})),
      delta_sent_(CounterFamily(registry, "freshet_weight_delta_sent_bytes_total",
                                "Bytes that it sent for them; also counted in "
                                "freshet_weight_sync_bytes_total.")
                      .Add({})),
      failures_(CounterFamily(registry, "freshet_weight_sync_failures_total",
                              "Members that a publication left out, pulls that failed, or groups "
                              "of a broadcast that failed, by cause.")),
      members_(HistogramFamily(
          registry, "freshet_weight_member_seconds",
          "Seconds until a member had activated the version of a publication, by route; one "
          "observation per member that did.")),
      slowest_(CounterFamily(registry, "freshet_weight_slowest_member_seconds_total",
                             "Seconds that the slowest member of each publication took; over "
                             "freshet_weight_publications_total: their mean.")),
      publications_(CounterFamily(registry, "freshet_weight_publications_total",
                                  "Publications that brought a version to at least one member.")) {
  Histograms& seconds = HistogramFamily(
      registry, "freshet_weight_sync_seconds",
      "Seconds of the phases of a weight publication. The trainer times wait and stage, while "
      "training pauses, transfer (until the last member answers) and activate (the longest call, "
      "during or after transfer); each engine times verify.");
  for (int i = 0; i < kNumWeightPhases; ++i) {
    const char* phase = WeightPhaseName(static_cast<WeightPhase>(i));
    phases_[static_cast<size_t>(i)] = &seconds.Add({{"phase", phase}}, LongSeconds());
  }
  for (const char* cause : kCauses) by_cause_[cause] = &failures_.Add({{"cause", cause}});
}

void WeightSyncMetrics::OnPhase(WeightPhase phase, absl::Duration took) {
  phases_[static_cast<size_t>(phase)]->Observe(absl::ToDoubleSeconds(took));
}

void WeightSyncMetrics::OnBytes(int64_t bytes) { bytes_.Increment(static_cast<double>(bytes)); }

void WeightSyncMetrics::OnDelta(int64_t bytes, int64_t sent) {
  delta_bytes_.Increment(static_cast<double>(bytes));
  delta_sent_.Increment(static_cast<double>(sent));
}

void WeightSyncMetrics::OnFailure(const char* cause) {
  MutexLock lock(mu_);
  const auto found = by_cause_.find(cause);
  (found == by_cause_.end() ? by_cause_.at("other") : found->second)->Increment();
}

WeightSyncMetrics::Route& WeightSyncMetrics::Of(const std::string& job, const char* route) {
  if (recent_.empty() || recent_.back() != job) {
    std::erase(recent_, job);
    recent_.push_back(job);
    if (recent_.size() > kKeptJobs + 1) {
      jobs_.erase(recent_.front());
      recent_.pop_front();
    }
  }
  auto& routes = jobs_[job];
  const auto found = routes.find(route);
  if (found != routes.end()) return found->second;
  const Labels labels = {{"job", job}, {"route", route}};
  Route made{{members_, labels, LongSeconds()}, {slowest_, labels}, {publications_, labels}};
  return routes.emplace(route, std::move(made)).first->second;
}

void WeightSyncMetrics::OnMembers(const std::string& job, const char* route,
                                  const std::vector<absl::Duration>& took) {
  MutexLock lock(mu_);
  const Route& series = Of(job, route);
  for (const absl::Duration time : took) series.members->Observe(absl::ToDoubleSeconds(time));
  series.slowest->Increment(absl::ToDoubleSeconds(*std::max_element(took.begin(), took.end())));
  series.publications->Increment();
}

void WatchQueues(GrpcWeightService& service, QueueMetrics& queues) {
  queues.Watch("weight_calls", GrpcWeightService::kMaxQueuedCalls,
               [&service] { return static_cast<int64_t>(service.queued_calls()); });
  queues.Watch("weight_prepares", service.max_streams(),
               [&service] { return int64_t{service.open_prepares()}; });
  queues.Watch("weight_broadcasts", service.max_streams(),
               [&service] { return static_cast<int64_t>(service.queued_broadcasts()); });
  queues.Watch("weight_pulls", service.max_streams(),
               [&service] { return int64_t{service.open_pulls()}; });
}

}  // namespace freshet::metrics
