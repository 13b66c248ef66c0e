#ifndef FRESHET_CLI_CLUSTER_SUPERVISOR_H_
#define FRESHET_CLI_CLUSTER_SUPERVISOR_H_

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "cli/cluster/cluster_layout.h"
#include "cli/cluster/cluster_plan.h"
#include "cli/cluster/process_host.h"

namespace freshet {

// One process, as others see it.
struct ProcessRecord {
  ProcessId id;
  Phase phase = Phase::kStarting;
  ProcessStamp stamp;
  absl::Time started = absl::InfinitePast();
  std::string grpc, http;  // addresses, once it was ready
  std::string status;      // of a controller's status page
  int restarts = 0;
  std::string last_end;  // "exit code 1", "signal 9"; "" before the first one
};

// Keeps the processes of a cluster as they are wanted: starts them in order, starts again what dies
// after a growing wait, drains what is not wanted. Confined to one thread.
class Supervisor {
 public:
  // Called with one line about what happened, in the order of events.
  using Report = std::function<void(std::string_view)>;

  Supervisor(ClusterLayout layout, ProcessHost& host, const Clock& clock, Report report,
             const PlanLimits& limits = {});

  // Processes wanted by group from now on; groups that are not named keep their number.
  void SetWanted(const std::map<std::string, int>& wanted);
  // Everything ends, in order.
  void Stop();
  // Handles what happens within `timeout`, then acts. To be called again and again.
  void Tick(absl::Duration timeout);

  // All that is wanted is ready.
  bool Ready() const;
  // Stopped, and nothing runs.
  bool Done() const { return stopping_ && processes_.empty(); }
  // Grows whenever a record changes.
  int64_t revision() const { return revision_; }
  std::vector<ProcessRecord> records() const;
  // A process that has died `times` times in a row without being ready for long; "" without one.
  std::string FailedRepeatedly(int times) const;

 private:
  struct Process {
    ProcessRecord record;
    ProcessView view;
    int failures = 0;  // in a row
  };

  void Handle(const ProcessEvent& event);
  void HandleExit(Process& process, const ProcessEvent& event);
  void Act(const Action& action);
  void Start(const ProcessId& id);
  void Fail(Process& process, const std::string& why,
            absl::Duration at_least = absl::ZeroDuration());
  void SetPhase(Process& process, Phase phase);

  const ClusterLayout layout_;
  ProcessHost& host_;
  const Clock& clock_;
  const Report report_;
  const PlanLimits limits_;
  std::map<std::string, int> wanted_;
  std::map<ProcessId, Process> processes_;
  bool stopping_ = false;
  int64_t revision_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_SUPERVISOR_H_
