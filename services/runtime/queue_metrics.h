#ifndef FRESHET_SERVICES_RUNTIME_QUEUE_METRICS_H_
#define FRESHET_SERVICES_RUNTIME_QUEUE_METRICS_H_

#include <cstdint>
#include <functional>
#include <list>
#include <string>

#include "base/mutex.h"
#include "services/runtime/series.h"

namespace freshet::metrics {

// The bounded queues of a process: freshet_queue_entries{queue} and
// freshet_queue_bound_entries{queue}. Queue names are fixed in the program. Thread-safe.
class QueueMetrics {
 public:
  explicit QueueMetrics(prometheus::Registry& registry);

  // `depth` is called at each Refresh; must be quick and thread-safe.
  void Watch(const std::string& queue, int64_t bound, std::function<int64_t()> depth)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Refresh() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Queue {
    GaugeSeries entries;
    GaugeSeries bound;
    std::function<int64_t()> depth;
  };
  Gauges& entries_;
  Gauges& bounds_;
  Mutex mu_;
  std::list<Queue> queues_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet::metrics

#endif  // FRESHET_SERVICES_RUNTIME_QUEUE_METRICS_H_
