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

struct ProcessRecord {
  ProcessId id;
  Phase phase = Phase::kStarting;
  ProcessStamp stamp;
  absl::Time started = absl::InfinitePast();
  std::string grpc, http;  // addresses, once it was ready
  std::string status;      // of a controller's status page
  std::string api;         // a model server's URL
  int restarts = 0;
  std::string last_end;  // "exit code 1", "signal 9"; "" if it never ended
};

// Keeps a cluster's processes at the wanted numbers: starts them in order, restarts dead ones with
// backoff, drains surplus ones. Not thread-safe.
class Supervisor {
 public:
  // Called with one line per event, in order.
  using Report = std::function<void(std::string_view)>;

  Supervisor(ClusterLayout layout, ProcessHost& host, const Clock& clock, Report report,
             const PlanLimits& limits = {});

  // Sets the wanted number of processes by group; other groups keep their number.
  void SetWanted(const std::map<std::string, int>& wanted);
  void Stop();
  // Handles events that occur within `timeout`, then acts. Call it repeatedly.
  void Tick(absl::Duration timeout);

  // Everything that is wanted is ready.
  bool Ready() const;
  // Stopped, and no process is left.
  bool Done() const { return stopping_ && processes_.empty(); }
  // Increases whenever a record changes.
  int64_t revision() const { return revision_; }
  std::vector<ProcessRecord> records() const;
  // A process that has died `times` times in a row without being ready for long; "" if none.
  std::string FailedRepeatedly(int times) const;

 private:
  struct Process {
    ProcessRecord record;
    ProcessView view;
    int failures = 0;  // consecutive
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
