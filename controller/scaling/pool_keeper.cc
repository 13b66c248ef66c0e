#include "controller/scaling/pool_keeper.h"

#include <algorithm>
#include <utility>

#include "controller/cluster/pool_scaler.h"
#include "services/base/log.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

// Pools that anybody has named.
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

void Fix(const PoolInput& input, PoolFigures& figures) {
  const auto asked = input.asked.find(PoolKey("rollout", figures.pool));
  if (asked != input.asked.end()) {
    figures.wanted = asked->second;
    figures.text = "as many as asked for";
    return;
  }
  figures.wanted = static_cast<int32_t>(
      std::count_if(input.workers.begin(), input.workers.end(), [&figures](const Member& member) {
        return member.record.role() == cluster::v1::ROLE_ROLLOUT &&
               member.record.pool() == figures.pool && !member.status.draining();
      }));
  figures.text = "as many as there were in the last minutes";
}

}  // namespace

bool PoolKeeper::Due(absl::Time now) const {
  MutexLock lock(mu_);
  return now - looked_ >= options_.period;
}

std::vector<PoolFigures> PoolKeeper::Look(const PoolInput& input, absl::Time now) {
  std::vector<PoolFigures> all;
  MutexLock lock(mu_);
  looked_ = now;
  std::map<std::string, PoolFigures> pools;
  for (const std::string& pool : NamesOf(options_, input)) {
    const auto job = std::find_if(input.jobs.begin(), input.jobs.end(),
                                  [&pool](const JobDemand& demand) { return demand.pool == pool; });
    const PoolSignals signals =
        MeasurePool(pool, input.workers, job == input.jobs.end() ? nullptr : &*job,
                    input.queued.contains(pool), now);
    PoolFigures figures;
    figures.pool = pool;
    figures.ready = signals.ready;
    const auto bounds = options_.bounds.find(pool);
    if (bounds == options_.bounds.end()) {
      Fix(input, figures);
    } else {
      PoolState& state = states_[pool];
      const int32_t before = state.wanted;
      PoolDecision decision = DecidePool(options_.rules, bounds->second, state, signals);
      figures.wanted = decision.wanted;
      figures.reason = decision.reason;
      figures.text = std::move(decision.text);
      figures.bounds = bounds->second;
      state = std::move(decision.next);
      if (before != figures.wanted) {
        FRESHET_LOG(Info) << "event=pool_wanted pool=" << pool << " wanted=" << figures.wanted
                          << " reason=" << Name(figures.reason)
                          << " why=" << LogQuoted(figures.text);
      }
    }
    all.push_back(figures);
    pools[pool] = std::move(figures);
  }
  pools_ = std::move(pools);
  return all;
}

std::vector<PoolFigures> PoolKeeper::Pools() const {
  MutexLock lock(mu_);
  std::vector<PoolFigures> all;
  for (const auto& [pool, figures] : pools_) all.push_back(figures);
  return all;
}

std::optional<PoolFigures> PoolKeeper::Find(const std::string& pool) const {
  MutexLock lock(mu_);
  const auto found = pools_.find(pool);
  if (found == pools_.end()) return std::nullopt;
  return found->second;
}

}  // namespace freshet
