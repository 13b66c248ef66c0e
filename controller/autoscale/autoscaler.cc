#include "controller/autoscale/autoscaler.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "controller/cluster/pool_scaler.h"

namespace freshet {
namespace {

std::set<std::string> NamesOf(const PoolOptions& options, const PoolInput& input) {
  std::set<std::string> names = input.queued;
  for (const auto& [pool, bounds] : options.bounds) names.insert(pool);
  for (const JobDemand& job : input.jobs) names.insert(job.pool);
  for (const Member& member : input.workers) {
    if (member.record.role() == cluster::v1::ROLE_ROLLOUT) names.insert(member.record.pool());
  }
  for (const auto& [key, replicas] : input.asked) {
    if (const auto pool = PoolOfKey(key)) names.insert(*pool);
  }
  return names;
}

void Fix(const PoolInput& input, PoolStats& stats) {
  const auto asked = input.asked.find(PoolKey("rollout", stats.pool));
  if (asked != input.asked.end()) {
    stats.wanted = asked->second;
    stats.text = "as many as requested";
    return;
  }
  stats.wanted = static_cast<int32_t>(
      std::count_if(input.workers.begin(), input.workers.end(), [&stats](const Member& member) {
        return member.record.role() == cluster::v1::ROLE_ROLLOUT &&
               member.record.pool() == stats.pool && !member.status.draining();
      }));
  stats.text = "as many as there were in the last minutes";
}

}  // namespace

bool Autoscaler::Due(absl::Time now) const {
  MutexLock lock(mu_);
  return now - looked_ >= options_.period;
}

std::vector<PoolStats> Autoscaler::Look(const PoolInput& input, absl::Time now) {
  std::vector<PoolStats> all;
  MutexLock lock(mu_);
  looked_ = now;
  std::map<std::string, PoolStats> pools;
  for (const std::string& pool : NamesOf(options_, input)) {
    const auto job = std::find_if(input.jobs.begin(), input.jobs.end(),
                                  [&pool](const JobDemand& demand) { return demand.pool == pool; });
    const PoolSignals signals =
        MeasurePool(pool, input.workers, job == input.jobs.end() ? nullptr : &*job,
                    input.queued.contains(pool), now);
    PoolStats stats;
    stats.pool = pool;
    stats.ready = signals.ready;
    const auto bounds = options_.bounds.find(pool);
    if (bounds == options_.bounds.end()) {
      Fix(input, stats);
    } else {
      PoolState& state = states_[pool];
      const int32_t before = state.wanted;
      PoolDecision decision = DecidePool(options_.rules, bounds->second, state, signals);
      stats.wanted = decision.wanted;
      stats.reason = decision.reason;
      stats.text = std::move(decision.text);
      stats.bounds = bounds->second;
      state = std::move(decision.next);
      if (before != stats.wanted) {
        FRESHET_LOG(Info) << "event=pool_wanted pool=" << pool << " wanted=" << stats.wanted
                          << " reason=" << Name(stats.reason) << " why=" << LogQuoted(stats.text);
      }
    }
    all.push_back(stats);
    pools[pool] = std::move(stats);
  }
  pools_ = std::move(pools);
  return all;
}

std::vector<PoolStats> Autoscaler::Pools() const {
  MutexLock lock(mu_);
  std::vector<PoolStats> all;
  for (const auto& [pool, stats] : pools_) all.push_back(stats);
  return all;
}

std::optional<PoolStats> Autoscaler::Find(const std::string& pool) const {
  MutexLock lock(mu_);
  const auto found = pools_.find(pool);
  if (found == pools_.end()) return std::nullopt;
  return found->second;
}

}  // namespace freshet
