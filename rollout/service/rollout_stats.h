#ifndef FRESHET_ROLLOUT_SERVICE_ROLLOUT_STATS_H_
#define FRESHET_ROLLOUT_SERVICE_ROLLOUT_STATS_H_

#include <cstdint>

#include "rollout/worker/rollout_worker.h"
#include "services/runtime/stats_by_job.h"

namespace freshet {

struct RolloutStats {
  RolloutCounters counters;
  int64_t version = -1;  // of its current weights; -1: none
  int64_t max_unsent_samples = 0;

  void Add(const RolloutStats& other);
  void ClearGauges();
};

using RolloutStatsByJob = metrics::StatsByJob<RolloutStats>;

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_ROLLOUT_STATS_H_
