#ifndef FRESHET_SERVICES_RUNTIME_PROCESS_METRICS_H_
#define FRESHET_SERVICES_RUNTIME_PROCESS_METRICS_H_

#include <string>

#include "services/runtime/series.h"

namespace freshet::runtime {

// Standard process metrics of Prometheus clients (process_cpu_seconds_total and others, from
// /proc), and freshet_build_info{role, version}. Not thread-safe.
class ProcessMetrics {
 public:
  ProcessMetrics(prometheus::Registry& registry, const std::string& role,
                 const std::string& version);
  // Rereads /proc. Values that cannot be read are kept.
  void Refresh();

 private:
  prometheus::Counter& cpu_seconds_;
  prometheus::Gauge& resident_bytes_;
  prometheus::Gauge& virtual_bytes_;
  prometheus::Gauge& open_fds_;
  prometheus::Gauge& max_fds_;
  prometheus::Gauge& threads_;
  prometheus::Gauge& start_time_;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_PROCESS_METRICS_H_
