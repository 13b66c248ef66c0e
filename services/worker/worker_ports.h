#ifndef FRESHET_SERVICES_WORKER_WORKER_PORTS_H_
#define FRESHET_SERVICES_WORKER_WORKER_PORTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "freshet/cluster/v1/worker_service.pb.h"

namespace freshet::runtime {

// What a worker says about itself. Called from the agent's thread; must be quick.
class StatusSource {
 public:
  virtual ~StatusSource() = default;
  // Fills assignments, load and flags; worker, epoch, sequence and log are the agent's.
  virtual void FillStatus(cluster::v1::WorkerStatus& status) = 0;
  // The assignments it works on, said at each registration.
  virtual std::vector<std::string> AssignmentIds() = 0;
};

// What a worker is told. All calls come from one thread of the agent, in the order of events, and
// may block; the heartbeat goes on meanwhile.
class DirectiveSink {
 public:
  virtual ~DirectiveSink() = default;
  // The worker is registered; `worker` is "NAME#EPOCH", the name for leases from now on. The store
  // decides whether leases under a former name still hold.
  virtual void OnEpoch(const std::string& worker) = 0;
  virtual void OnDirective(const cluster::v1::Directive& directive) = 0;
  // The leases of the former epoch are gone: the controller has said so, or has heard nothing for
  // `lost_after`. OnEpoch follows when the worker is registered again.
  virtual void OnFenced(const std::string& reason) = 0;
};

// What the work of a job asks of the leading controller. A call is repeated while the controller
// cannot be reached. Thread-safe.
class ControllerCalls {
 public:
  virtual ~ControllerCalls() = default;
  // UNAVAILABLE: no controller was reached within WorkerAgentOptions::data_timeout.
  virtual absl::StatusOr<cluster::v1::FetchRowsReply> FetchRows(
      const cluster::v1::FetchRowsRequest& request) = 0;
  // Fills worker and epoch. The same errors.
  virtual absl::Status ReportEvaluation(cluster::v1::ReportEvaluationRequest request) = 0;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_WORKER_WORKER_PORTS_H_
