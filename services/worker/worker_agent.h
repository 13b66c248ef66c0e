#ifndef FRESHET_SERVICES_WORKER_WORKER_AGENT_H_
#define FRESHET_SERVICES_WORKER_WORKER_AGENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "services/runtime/channel.h"
#include "services/runtime/log_ring.h"
#include "services/worker/worker_ports.h"

namespace freshet::runtime {

struct WorkerAgentOptions {
  std::vector<std::string> controllers;  // HOST:PORT, the active one and standbys, tried in turn
  ChannelOptions channel;                // keepalive is the agent's own
  // role, worker, address, http_address, pool, host, version, incarnation.
  cluster::v1::RegisterRequest identity;
  Backoff::Options backoff;
  absl::Duration call_timeout = absl::Seconds(5);   // of one Register or Deregister
  absl::Duration data_timeout = absl::Seconds(30);  // of FetchRows and ReportEvaluation
  // Waiting for the sink. When they are too many the connection is given up and made anew, since
  // the controller repeats what is in force.
  size_t max_pending_directives = 1024;
};

// Splits "HOST:PORT,HOST:PORT". INVALID_ARGUMENT naming the entry that is none.
absl::StatusOr<std::vector<std::string>> ParseControllers(const std::string& list);

// The worker's side of WorkerService: keeps it registered, sends its status every interval that the
// controller asks for, and hands the controller's directives to the sink. Follows the leader among
// several controllers. Thread-safe.
class WorkerAgent final : public ControllerCalls {
 public:
  // `source`, `sink`, `log` (may be null) and `clock` must outlive the agent. `clock` only tells
  // for how long the controller was not reached. INVALID_ARGUMENT: no controller, a bad address, an
  // identity without role or name.
  static absl::StatusOr<std::unique_ptr<WorkerAgent>> Create(
      const WorkerAgentOptions& options, StatusSource& source, DirectiveSink& sink, LogRing* log,
      const Clock& clock = SystemClock::Get());
  // Stop().
  ~WorkerAgent() override;

  // Registers, and from then on calls source and sink. Called once.
  void Begin();

  // "NAME#EPOCH" of the epoch in force; "" when there is none.
  std::string worker() const;
  // True between a registration and the loss of the connection.
  bool connected() const;
  // The controller that the worker is, or was last, registered with.
  std::string controller() const;

  absl::StatusOr<cluster::v1::FetchRowsReply> FetchRows(
      const cluster::v1::FetchRowsRequest& request) override;
  absl::Status ReportEvaluation(cluster::v1::ReportEvaluationRequest request) override;
  // Sends the status now, not at the next interval.
  void SendStatusNow();
  // Says that the worker leaves, then Stop(). The last status and log lines go out before. OK when
  // it was not registered.
  absl::Status Deregister(const std::string& reason);
  // Ends both threads; no call to source and sink afterwards. Not to be called from the sink.
  // Idempotent.
  void Stop();

 private:
  class Impl;
  explicit WorkerAgent(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_WORKER_WORKER_AGENT_H_
