#ifndef FRESHET_ROLLOUT_SERVICE_ROLLOUT_METRICS_H_
#define FRESHET_ROLLOUT_SERVICE_ROLLOUT_METRICS_H_

#include <map>
#include <memory>
#include <string>

#include "rollout/service/rollout_stats.h"
#include "services/runtime/series.h"

namespace freshet {

// The works of a rollout process, for Prometheus. Confined to one thread at a time.
class RolloutMetrics {
 public:
  // `registry` must outlive this object.
  explicit RolloutMetrics(prometheus::Registry& registry);
  ~RolloutMetrics();

  // Makes the series say what the stats_by_job says; those of jobs that it has forgotten are
  // removed.
  void Show(const std::map<std::string, RolloutStats>& stats);

 private:
  class Job;

  prometheus::Registry& registry_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_ROLLOUT_METRICS_H_
