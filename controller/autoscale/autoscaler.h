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

// A pool as it was looked at last.
struct PoolStats {
  std::string pool;
  int32_t ready = 0;
  int32_t wanted = 0;
  ScalingReason reason = ScalingReason::kFixed;
  std::string text;                  // the reason for people
  std::optional<PoolBounds> bounds;  // none: the number is nobody's decision
};

struct PoolOptions {
  std::map<std::string, PoolBounds> bounds;  // of the pools that scale by themselves
  ScalingRules rules;
  absl::Duration period = absl::Seconds(1);  // between two looks
};

// What there is to look at.
struct PoolInput {
  std::vector<Member> workers;
  std::vector<JobDemand> jobs;           // that have left the queue
  std::set<std::string> queued;          // pools that a job waits for
  std::map<std::string, int32_t> asked;  // for, by PoolKey: by hand, or by a workload of Kubernetes
};

// The pools of a cluster during one term of leadership. A pool with bounds gets a decision; its
// first one starts from the engines that the former leader knew. Others show what was asked for, or
// else how many engines they had in the last minutes. Thread-safe.
class Autoscaler {
 public:
  explicit Autoscaler(PoolOptions options) : options_(std::move(options)) {}

  // Whether it is time for the next look.
  bool Due(absl::Time now) const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns all pools.
  std::vector<PoolStats> Look(const PoolInput& input, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);

  // As of the last look, by name; none before the first one.
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
