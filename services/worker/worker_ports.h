#ifndef FRESHET_SERVICES_WORKER_WORKER_PORTS_H_
#define FRESHET_SERVICES_WORKER_WORKER_PORTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "freshet/cluster/v1/worker_service.pb.h"

namespace freshet::runtime {

// Provides a worker's status. Called from the agent's thread; must be quick.
class StatusSource {
 public:
  virtual ~StatusSource() = default;
  // Fills assignments, load and flags; the agent fills worker, epoch, sequence and log.
  virtual void FillStatus(cluster::v1::WorkerStatus& status) = 0;
  // Ids of the current assignments, sent with each registration.
  virtual std::vector<std::string> AssignmentIds() = 0;
};

// Receives a worker's events. All calls come from one thread of the agent, in the order of events,
// and may block without delaying heartbeats.
class DirectiveSink {
 public:
  virtual ~DirectiveSink() = default;
  // The worker is registered; `worker` is "NAME#EPOCH", its name in leases from now on. The store
  // decides whether leases under a former name still hold.
  virtual void OnEpoch(const std::string& worker) = 0;
  virtual void OnDirective(const cluster::v1::Directive& directive) = 0;
  // The leases of the former epoch are lost: the controller said so, or was unreachable for
  // `lost_after`. OnEpoch follows once the worker is registered again.
  virtual void OnFenced(const std::string& reason) = 0;
};

// Calls of a job's work to the leading controller. Calls are retried while the controller is
// unreachable. Thread-safe.
class ControllerCalls {
 public:
  virtual ~ControllerCalls() = default;
  // UNAVAILABLE: no controller was reached within WorkerAgentOptions::data_timeout.
  virtual absl::StatusOr<cluster::v1::FetchRowsReply> FetchRows(
      const cluster::v1::FetchRowsRequest& request) = 0;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_WORKER_WORKER_PORTS_H_
