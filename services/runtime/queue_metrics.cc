#include "services/runtime/queue_metrics.h"

#include <utility>

namespace freshet::metrics {

QueueMetrics::QueueMetrics(prometheus::Registry& registry)
    : entries_(GaugeFamily(registry, "freshet_queue_entries", "Entries of a bounded queue now.")),
      bounds_(GaugeFamily(registry, "freshet_queue_bound_entries",
                          "Capacity of a bounded queue; further entries are refused or wait.")) {}

void QueueMetrics::Watch(const std::string& queue, int64_t bound, std::function<int64_t()> depth) {
  Queue entry{{entries_, {{"queue", queue}}}, {bounds_, {{"queue", queue}}}, std::move(depth)};
  entry.bound->Set(static_cast<double>(bound));
  MutexLock lock(mu_);
  queues_.push_back(std::move(entry));
}

void QueueMetrics::Refresh() {
  MutexLock lock(mu_);
  for (const Queue& queue : queues_) queue.entries->Set(static_cast<double>(queue.depth()));
}

}  // namespace freshet::metrics
