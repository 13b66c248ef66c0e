#include "controller/autoscale/pool_signals.h"

#include <algorithm>

namespace freshet {

JobDemand MeasureDemand(const StoreOptions& store, const JobSituation& situation, absl::Time now) {
  JobDemand demand;
  demand.measured = now;
  demand.trainer_wait = 1 - std::clamp(situation.trainer_busy, 0.0, 1.0);
  const StalenessOptions& staleness = store.staleness;
  demand.admissible =
      std::min((staleness.max + 1) * staleness.groups_per_step, staleness.max_in_flight);
  if (situation.oldest_ready != absl::InfiniteFuture()) {
    demand.queue_age = std::max(now - situation.oldest_ready, absl::ZeroDuration());
  }
  bool ends = situation.trainer_done;
  if (situation.stats != nullptr) {
    demand.version = situation.stats->committed_version;
    demand.outstanding = situation.stats->outstanding;
    const int64_t needed = (store.last_step - demand.version) * staleness.groups_per_step;
    ends = ends || situation.stats->outstanding >= needed;
  }
  demand.phase = situation.paused             ? JobPhase::kPaused
                 : ends                       ? JobPhase::kEnds
                 : situation.trainers == 0    ? JobPhase::kTrainerAway
                 : situation.opens            ? JobPhase::kStarts
                 : !situation.trainer_running ? JobPhase::kStarts
                 : situation.stats == nullptr ? JobPhase::kUnknown
                                              : JobPhase::kTrains;
  return demand;
}

PoolSignals MeasurePool(const std::string& pool, const std::vector<Member>& workers,
                        const JobDemand* job, bool queued, absl::Time now) {
  PoolSignals signals;
  signals.time = now;
  for (const Member& member : workers) {
    if (member.record.role() != cluster::v1::ROLE_ROLLOUT || member.record.pool() != pool) continue;
    if (member.record.lost() || member.status.draining()) continue;
    ++signals.expected;
    if (!member.connected) continue;
    ++signals.ready;
    signals.busy += std::clamp(member.status.busy_ratio(), 0.0, 1.0);
  }
  if (job != nullptr) {
    signals.phase = now - job->measured > kDemandHolds ? JobPhase::kUnknown : job->phase;
    signals.job = job->job;
    signals.trainer_wait = job->trainer_wait;
    signals.version = job->version;
    signals.admissible = job->admissible;
    signals.outstanding = job->outstanding;
    signals.queue_age = job->queue_age;
  } else if (queued) {
    signals.phase = JobPhase::kQueued;
  }
  return signals;
}

}  // namespace freshet
