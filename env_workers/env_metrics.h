#ifndef FRESHET_ENV_WORKERS_ENV_METRICS_H_
#define FRESHET_ENV_WORKERS_ENV_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "env_workers/environment.h"

namespace freshet {

enum class EpisodeOutcome { kTerminated, kTruncated, kAbandoned, kFailed };
// The name in labels and logs, such as "terminated".
const char* Name(EpisodeOutcome outcome);

// Metrics of an environment worker: freshet_episodes_total{environment, outcome},
// freshet_episode_turns{environment}, freshet_environment_step_seconds{environment} and
// freshet_episodes_open. Environments outside the registry are not counted, so labels are bounded.
// Thread-safe.
class EnvMetrics {
 public:
  EnvMetrics(prometheus::Registry& registry, const EnvironmentRegistry& environments);

  void SetOpen(int64_t episodes) { open_->Set(static_cast<double>(episodes)); }
  void CountStep(const std::string& environment, absl::Duration took);
  void CountEpisode(const std::string& environment, EpisodeOutcome outcome, int64_t turns);

 private:
  struct Handles {
    prometheus::Counter* by_outcome[4] = {};
    prometheus::Histogram* turns = nullptr;
    prometheus::Histogram* step_seconds = nullptr;
  };
  std::map<std::string, Handles> handles_;  // by environment; fixed after construction
  prometheus::Gauge* open_ = nullptr;
};

}  // namespace freshet

#endif  // FRESHET_ENV_WORKERS_ENV_METRICS_H_
