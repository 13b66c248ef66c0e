#ifndef FRESHET_ROLLOUT_SERVICE_ROLLOUT_METRICS_H_
#define FRESHET_ROLLOUT_SERVICE_ROLLOUT_METRICS_H_

#include <map>
#include <memory>
#include <string>

#include "rollout/service/rollout_figures.h"
#include "services/metrics/series.h"

namespace freshet {

// The works of a rollout process, for Prometheus. Confined to one thread at a time.
class RolloutMetrics {
 public:
  // `registry` must outlive this object.
  explicit RolloutMetrics(prometheus::Registry& registry);
  ~RolloutMetrics();

  // Makes the series say what the board says; those of jobs that it has forgotten are removed.
  void Show(const std::map<std::string, RolloutFigures>& figures);

 private:
  class Job;

  prometheus::Registry& registry_;
  std::map<std::string, std::unique_ptr<Job>> jobs_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_ROLLOUT_METRICS_H_
