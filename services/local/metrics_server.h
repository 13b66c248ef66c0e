#ifndef FRESHET_SERVICES_LOCAL_METRICS_SERVER_H_
#define FRESHET_SERVICES_LOCAL_METRICS_SERVER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "services/runfolder/step_metrics.h"

namespace freshet {

// Serves the run's figures for Prometheus: http://127.0.0.1:PORT/metrics, loopback only. Metric
// names carry base units; counters grow over the process's life. Thread-safe.
class MetricsServer {
 public:
  // FAILED_PRECONDITION when the port is taken.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(int port, int64_t staleness_bound);
  ~MetricsServer();

  void Observe(const StepMetrics& metrics);
  void Observe(const EvalMetrics& metrics);

 private:
  struct Handles;
  explicit MetricsServer(std::unique_ptr<Handles> handles);
  std::unique_ptr<Handles> handles_;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_LOCAL_METRICS_SERVER_H_
