#ifndef FRESHET_LOCAL_METRICS_SERVER_H_
#define FRESHET_LOCAL_METRICS_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runlog/step_metrics.h"
#include "trainer/loop/batch_stats.h"
#include "trainer/loop/trainer_loop.h"

namespace freshet {

// Serves the run's metrics for Prometheus at http://127.0.0.1:PORT/metrics, loopback only. Metric
// names are those of a cluster's roles. Thread-safe.
class MetricsServer {
 public:
  struct Job {
    std::string name;
    std::string environment;  // "none" without one
    int64_t staleness_bound = 0;
    double full_marks = 1;  // minimum reward of a solved sample
  };
  // FAILED_PRECONDITION if the port is taken.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(int port, const Job& job);
  ~MetricsServer();

  void Observe(const StepMetrics& metrics, const FinishedStep& report);
  void Observe(const EvalMetrics& metrics);

 private:
  struct Handles;
  explicit MetricsServer(std::unique_ptr<Handles> handles);
  std::unique_ptr<Handles> handles_;
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_METRICS_SERVER_H_
