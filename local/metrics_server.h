#ifndef FRESHET_LOCAL_METRICS_SERVER_H_
#define FRESHET_LOCAL_METRICS_SERVER_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/gpu_memory.h"
#include "job/job_schema.h"
#include "runlog/step_metrics.h"
#include "services/runtime/gpu_memory_metrics.h"
#include "services/runtime/http_server.h"
#include "services/runtime/series.h"
#include "trainer/service/training_metrics.h"

namespace freshet {

// Serves the run's metrics for Prometheus at http://127.0.0.1:PORT/metrics, loopback only. Metric
// names are those of a cluster's roles. Thread-safe.
class MetricsServer {
 public:
  // `read_gpus` may be empty. FAILED_PRECONDITION if the port is taken.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(int port, const JobSpec& spec,
                                                              GpuMemoryReader read_gpus = {});

  void Observe(const StepMetrics& metrics, const FinishedStep& report);
  void Observe(const EvalMetrics& metrics);

 private:
  MetricsServer(const JobSpec& spec, GpuMemoryReader read_gpus);

  prometheus::Registry registry_;
  TrainingMetrics training_;
  metrics::GpuMemoryMetrics gpus_;
  metrics::GaugeSeries bound_, last_step_;
  std::map<std::string, metrics::GaugeSeries> accuracy_;  // by evaluation set
  metrics::CounterSeries idle_, swap_, generated_, dropped_, filtered_, dead_;
  runtime::Readiness readiness_;
  std::unique_ptr<runtime::HttpServer> server_;
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_METRICS_SERVER_H_
