#ifndef FRESHET_WEIGHTS_GRPC_WEIGHT_SYNC_METRICS_H_
#define FRESHET_WEIGHTS_GRPC_WEIGHT_SYNC_METRICS_H_

#include <array>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "services/runtime/queue_metrics.h"
#include "services/runtime/series.h"
#include "weights/grpc/weight_service.h"
#include "weights/weight_sync_observer.h"

namespace freshet::metrics {

// Weight plane metrics of a process: freshet_weight_sync_seconds{phase},
// freshet_weight_sync_bytes_total and freshet_weight_sync_failures_total{cause};
// freshet_weight_delta_bytes_total and freshet_weight_delta_sent_bytes_total; and member times by
// route, for the job that published last and the kKeptJobs before it. Thread-safe.
class WeightSyncMetrics final : public WeightSyncObserver {
 public:
  explicit WeightSyncMetrics(prometheus::Registry& registry);

  void OnPhase(WeightPhase phase, absl::Duration took) override;
  void OnBytes(int64_t bytes) override;
  void OnDelta(int64_t bytes, int64_t sent) override;
  void OnFailure(const char* cause) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnMembers(const std::string& job, const char* route,
                 const std::vector<absl::Duration>& took) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Route {
    HistogramSeries members;
    CounterSeries slowest, publications;
  };
  Route& Of(const std::string& job, const char* route) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  std::array<prometheus::Histogram*, kNumWeightPhases> phases_{};
  prometheus::Counter& bytes_;
  prometheus::Counter& delta_bytes_;
  prometheus::Counter& delta_sent_;
  Counters& failures_;
  Histograms& members_;
  Counters& slowest_;
  Counters& publications_;
  Mutex mu_;
  std::map<std::string, prometheus::Counter*> by_cause_ ABSL_GUARDED_BY(mu_);
  // By job, then route. `recent_` has the jobs, ordered by last publication.
  std::map<std::string, std::map<std::string, Route>> jobs_ ABSL_GUARDED_BY(mu_);
  std::deque<std::string> recent_ ABSL_GUARDED_BY(mu_);
};

// Reports the queues of `service`, which must outlive `queues`.
void WatchQueues(GrpcWeightService& service, QueueMetrics& queues);

}  // namespace freshet::metrics

#endif  // FRESHET_WEIGHTS_GRPC_WEIGHT_SYNC_METRICS_H_
