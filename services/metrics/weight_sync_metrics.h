#ifndef FRESHET_SERVICES_METRICS_WEIGHT_SYNC_METRICS_H_
#define FRESHET_SERVICES_METRICS_WEIGHT_SYNC_METRICS_H_

#include <array>
#include <map>
#include <string>

#include "services/base/mutex.h"
#include "services/metrics/series.h"
#include "weights/weight_sync_observer.h"

namespace freshet::metrics {

// The weight plane of a process: freshet_weight_sync_seconds{phase},
// freshet_weight_sync_bytes_total and freshet_weight_sync_failures_total{cause}. Thread-safe.
class WeightSyncMetrics final : public WeightSyncObserver {
 public:
  explicit WeightSyncMetrics(prometheus::Registry& registry);

  void OnPhase(WeightPhase phase, absl::Duration took) override;
  void OnBytes(int64_t bytes) override;
  void OnFailure(const char* cause) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::array<prometheus::Histogram*, kNumWeightPhases> phases_{};
  prometheus::Counter& bytes_;
  Counters& failures_;
  Mutex mu_;
  std::map<std::string, prometheus::Counter*> by_cause_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet::metrics

#endif  // FRESHET_SERVICES_METRICS_WEIGHT_SYNC_METRICS_H_
