#ifndef FRESHET_CLI_CLUSTER_CLUSTER_PLAN_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_PLAN_H_

#include <compare>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace freshet {

struct ProcessId {
  std::string role;  // "redis", "controller", "rollout", "reward", "env", "trainer", "model"
  std::string pool;  // of a rollout, "" is the default; the name of a model server
  int index = 1;
  auto operator<=>(const ProcessId&) const = default;
  // "rollout-2", "rollout-small-1"; "redis" without a number.
  std::string Name() const;
  // Key of its group: "rollout", "rollout/small".
  std::string Group() const;
};

enum class Phase {
  kStarting,  // running, not ready yet
  kReady,
  kDraining,  // told to stop
  kBackoff,   // died; restarts at `retry_at`
};

// The planner's view of a process that runs or will restart.
struct ProcessView {
  ProcessId id;
  Phase phase = Phase::kStarting;
  absl::Time since;     // start of the phase
  absl::Time retry_at;  // of kBackoff
  bool killed = false;  // SIGKILL was sent
};

struct PlanLimits {
  absl::Duration start_timeout = absl::Seconds(60);
  absl::Duration model_start_timeout = absl::Minutes(10);  // of model servers, which load a model
  // Longer than the roles' own drain timeout.
  absl::Duration drain_timeout = absl::Seconds(40);
  int max_per_group = 64;
};

struct PlanInput {
  std::vector<ProcessView> processes;
  std::map<std::string, int> wanted;  // number of processes by group
  bool stopping = false;
  absl::Time now;
  PlanLimits limits;
};

struct Action {
  enum class Kind {
    kStart,
    kDrain,   // SIGTERM
    kKill,    // SIGKILL
    kForget,  // in kBackoff and no longer wanted
  };
  Kind kind = Kind::kStart;
  ProcessId id;
  std::string reason;
};

// Plans the next actions: starts missing processes in the order redis, controllers, workers (each
// tier waits for one ready process of the previous one), drains surplus processes from the highest
// index down, and kills those that do not start or stop in time. When stopping: workers drain
// first, then controllers, then redis. Pure.
std::vector<Action> PlanCluster(const PlanInput& input);

// Delay after `failures` (>= 1) consecutive deaths: 0.2 s, doubled each time, at most 10 s.
absl::Duration RestartDelay(int failures);

// A process that was ready for this long before it died counts as having started well.
inline constexpr absl::Duration kStableAfter = absl::Seconds(30);

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_PLAN_H_
