#ifndef FRESHET_CLI_CLUSTER_CLUSTER_PLAN_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_PLAN_H_

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace freshet {

// One process of a cluster on this machine.
struct ProcessId {
  std::string role;  // "redis", "controller", "rollout", "reward", "env", "trainer"
  std::string pool;  // of a rollout; "" is the default
  int index = 1;
  auto operator<=>(const ProcessId&) const = default;
  // "rollout-2", "rollout-small-1"; "redis" has no number.
  std::string Name() const;
  // Key of its group: "rollout", "rollout/small".
  std::string Group() const;
};

enum class Phase {
  kStarting,  // runs, not ready yet
  kReady,
  kDraining,  // was told to end
  kBackoff,   // has died; starts again at `retry_at`
};

// What the planner knows of a process that runs or will run again.
struct ProcessView {
  ProcessId id;
  Phase phase = Phase::kStarting;
  absl::Time since;     // begin of the phase
  absl::Time retry_at;  // of kBackoff
  bool killed = false;  // SIGKILL was sent
};

struct PlanLimits {
  absl::Duration start_timeout = absl::Seconds(60);
  // Longer than the roles' own drain time-out.
  absl::Duration drain_timeout = absl::Seconds(40);
  int max_per_group = 64;
};

struct PlanInput {
  std::vector<ProcessView> processes;
  std::map<std::string, int> wanted;  // processes by group
  bool stopping = false;
  absl::Time now;
  PlanLimits limits;
};

struct Action {
  enum class Kind {
    kStart,
    kDrain,   // SIGTERM
    kKill,    // SIGKILL
    kForget,  // one in kBackoff that is not wanted any more
  };
  Kind kind = Kind::kStart;
  ProcessId id;
  std::string reason;
};

// What to do now: starts what is missing, in the order redis, controllers, workers (each waits for
// one ready process of the former), drains what is too much from the highest index down, kills what
// neither starts nor ends in time. When stopping: workers drain first, then controllers, then
// redis. Pure.
std::vector<Action> PlanCluster(const PlanInput& input);

// How long a process that has died `failures` times in a row (1 is the first) waits: 0.2 s, doubled
// each time, at most 10 s.
absl::Duration RestartDelay(int failures);

// A process that was ready for so long before it died counts as started well.
inline constexpr absl::Duration kStableAfter = absl::Seconds(30);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_PLAN_H_
