#ifndef FRESHET_CONTROLLER_API_CONTROLLER_METRICS_H_
#define FRESHET_CONTROLLER_API_CONTROLLER_METRICS_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "controller/jobs/driver/job_ports.h"
#include "services/runtime/series.h"

namespace freshet {

// A metric of jobs.
struct JobMetric {
  const char* name;
  const char* help;
};

// The controller's Prometheus metrics. Label sets are bounded: a job's series exist while it is
// active. Thread-safe.
class ControllerMetrics final : public ControllerObserver {
 public:
  // `on_datastore` is called with the state of the datastore; may be empty.
  ControllerMetrics(std::shared_ptr<prometheus::Registry> registry,
                    std::function<void(const absl::Status&)> on_datastore);

  void OnDatastore(const absl::Status& status) override;
  void OnLeading(bool leading) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnJob(const JobGauges& gauges) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnJobGone(const std::string& id) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnJobEnded(job::v1::JobState state) override;
  void OnWorkers(const std::vector<Member>& workers) override;
  void OnWorkerLost(cluster::v1::Role role) override;
  void OnWorkFailed(cluster::v1::Role role) override;
  // Ignored while this controller does not lead, so that pools are not counted twice.
  void OnPools(const std::vector<PoolStats>& pools) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Gauges = metrics::Gauges;
  using Counters = metrics::Counters;

  // Series of one job by metric and value of the label.
  struct Series {
    std::map<std::pair<std::string, std::string>, metrics::GaugeSeries> gauges;
    std::map<std::pair<std::string, std::string>, metrics::CounterSeries> counters;
  };
  void Set(const std::string& job, const JobMetric& metric, const char* label,
           const std::string& value, double number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Raises a counter to `number`, which never decreases.
  void Raise(const std::string& job, const JobMetric& metric, const char* label,
             const std::string& value, double number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetStats(const JobGauges& gauges) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetEnds(const JobGauges& gauges) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetBounds(const JobGauges& gauges) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetPools(const std::vector<PoolStats>& pools) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<prometheus::Registry> registry_;
  const std::function<void(const absl::Status&)> on_datastore_;
  prometheus::Gauge& leader_;
  prometheus::Gauge& datastore_up_;
  Counters& jobs_ended_;
  Gauges& workers_;
  Counters& lost_;
  Counters& failed_;
  Gauges& wanted_;
  Gauges& ready_;
  // Series of one pool, labeled with the current reason and the number of ready engines.
  struct Pool {
    ScalingReason reason = ScalingReason::kFixed;
    std::optional<metrics::GaugeSeries> wanted;
    metrics::GaugeSeries ready;
  };
  Mutex mu_;
  bool leading_ ABSL_GUARDED_BY(mu_) = false;
  std::map<std::string, Pool> pools_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Series> series_ ABSL_GUARDED_BY(mu_);  // by job
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_CONTROLLER_METRICS_H_
