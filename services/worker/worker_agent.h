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
  std::vector<std::string> controllers;  // HOST:PORT of leader and standbys, tried in turn
  ChannelOptions channel;                // keepalive is overridden by the agent
  // Set: role, worker, address, http_address, pool, host, version, incarnation.
  cluster::v1::RegisterRequest identity;
  Backoff::Options backoff;
  absl::Duration call_timeout = absl::Seconds(5);   // per Register or Deregister
  absl::Duration data_timeout = absl::Seconds(30);  // per FetchRows or ReportEvaluation
  // Limit on directives queued for the sink. On overflow the agent reconnects; the controller then
  // resends what is in force.
  size_t max_pending_directives = 1024;
};

// Splits "HOST:PORT,HOST:PORT". INVALID_ARGUMENT naming the malformed entry.
absl::StatusOr<std::vector<std::string>> ParseControllers(const std::string& list);

// The worker's side of WorkerService: keeps it registered, sends its status at the interval that
// the controller requests, and passes the controller's directives to the sink. Follows the leader
// among several controllers. Thread-safe.
class WorkerAgent final : public ControllerCalls {
 public:
  // `source`, `sink`, `log` (may be null) and `clock` must outlive the agent. `clock` only measures
  // how long the controller was unreachable. INVALID_ARGUMENT: no controller, a bad address, an
  // identity without role or name.
  static absl::StatusOr<std::unique_ptr<WorkerAgent>> Create(
      const WorkerAgentOptions& options, StatusSource& source, DirectiveSink& sink, LogRing* log,
      const Clock& clock = SystemClock::Get());
  // Calls Stop().
  ~WorkerAgent() override;

  // Registers; from then on source and sink are called. Call once.
  void Begin();

  // "NAME#EPOCH" of the current epoch; "" if none.
  std::string worker() const;
  // True between a registration and the loss of the connection.
  bool connected() const;
  // The controller that the worker is, or was last, registered with.
  std::string controller() const;

  absl::StatusOr<cluster::v1::FetchRowsReply> FetchRows(
      const cluster::v1::FetchRowsRequest& request) override;
  absl::Status ReportEvaluation(cluster::v1::ReportEvaluationRequest request) override;
  // Sends the status now instead of at the next interval.
  void SendStatusNow();
  // Sends the last status and log lines, deregisters, then Stop(). OK if it was not registered.
  absl::Status Deregister(const std::string& reason);
  // Stops both threads; source and sink are not called afterwards. Must not be called from the
  // sink. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit WorkerAgent(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_WORKER_WORKER_AGENT_H_
