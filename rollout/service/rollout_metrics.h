#ifndef FRESHET_ROLLOUT_SERVICE_ROLLOUT_METRICS_H_
#define FRESHET_ROLLOUT_SERVICE_ROLLOUT_METRICS_H_

#include <map>
#include <memory>
#include <string>

#include "rollout/service/rollout_stats.h"
#include "services/runtime/series.h"

namespace freshet {

// Prometheus metrics of a rollout process. Not thread-safe.
class RolloutMetrics {
 public:
  // `registry` must outlive this object.
  explicit RolloutMetrics(prometheus::Registry& registry);
  ~RolloutMetrics();

  // Sets the series from `stats`, by job, and removes those of other jobs.
  void Show(const std::map<std::string, RolloutStats>& stats);

 private:
  class Job;

  prometheus::Registry& registry_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_ROLLOUT_METRICS_H_
