#ifndef FRESHET_CONTROLLER_AUTOSCALE_AUTOSCALER_H_
#define FRESHET_CONTROLLER_AUTOSCALE_AUTOSCALER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "controller/autoscale/pool_decision.h"
#include "controller/autoscale/pool_signals.h"

namespace freshet {

// State of a pool at the last look.
struct PoolStats {
  std::string pool;
  int32_t ready = 0;
  int32_t wanted = 0;
  ScalingReason reason = ScalingReason::kFixed;
  std::string text;                  // the reason as a sentence
  std::optional<PoolBounds> bounds;  // none: the pool is not autoscaled
};

struct PoolOptions {
  std::map<std::string, PoolBounds> bounds;  // of autoscaled pools
  ScalingRules rules;
  absl::Duration period = absl::Seconds(1);  // between two looks
};

// Input of one look.
struct PoolInput {
  std::vector<Member> workers;
  std::vector<JobDemand> jobs;           // jobs that have left the queue
  std::set<std::string> queued;          // pools that queued jobs wait for
  std::map<std::string, int32_t> asked;  // by PoolKey: set manually or by a Kubernetes workload
};

// The pools of a cluster during one term of leadership. A pool with bounds gets decisions; the
// first one starts from the engines known to the former leader. Other pools show the requested
// number or, without one, the number of engines in the last minutes. Thread-safe.
class Autoscaler {
 public:
  explicit Autoscaler(PoolOptions options) : options_(std::move(options)) {}

  bool Due(absl::Time now) const ABSL_LOCKS_EXCLUDED(mu_);
  // Evaluates and returns all pools.
  std::vector<PoolStats> Look(const PoolInput& input, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

  // Pools by name as of the last look; empty before the first one.
  std::vector<PoolStats> Pools() const ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<PoolStats> Find(const std::string& pool) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const PoolOptions options_;
  mutable Mutex mu_;
  absl::Time looked_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::map<std::string, PoolState> states_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, PoolStats> pools_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_AUTOSCALE_AUTOSCALER_H_
