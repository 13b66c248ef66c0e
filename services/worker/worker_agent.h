#ifndef FRESHET_SERVICES_WORKER_WORKER_AGENT_H_
#define FRESHET_SERVICES_WORKER_WORKER_AGENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "services/runtime/channel.h"
#include "services/runtime/client_stream.h"
#include "services/runtime/log_ring.h"
#include "services/worker/controller_stubs.h"
#include "services/worker/directive_queue.h"
#include "services/worker/worker_ports.h"

namespace freshet::runtime {

struct WorkerAgentOptions {
  std::vector<std::string> controllers;  // HOST:PORT of leader and standbys, tried in turn
  ChannelOptions channel;                // keepalive is overridden by the agent
  // Set: role, worker, address, http_address, pool, engine, host, version,
  // incarnation.
  cluster::v1::RegisterRequest identity;
  Backoff::Options backoff;
  absl::Duration call_timeout = absl::Seconds(5);   // per Register or Deregister
  absl::Duration data_timeout = absl::Seconds(30);  // per FetchRows
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
  ~WorkerAgent() override { Stop(); }

  // Registers; from then on source and sink are called. Call once.
  void Begin() ABSL_LOCKS_EXCLUDED(join_mu_);

  // "NAME#EPOCH" of the current epoch; "" if none.
  std::string worker() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return worker_;
  }
  // True between a registration and the loss of the connection.
  bool connected() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return connected_;
  }
  // The controller that the worker is, or was last, registered with.
  std::string controller() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return controller_;
  }

  absl::StatusOr<cluster::v1::FetchRowsReply> FetchRows(
      const cluster::v1::FetchRowsRequest& request) override;

  // Sends the status now instead of at the next interval.
  void SendStatusNow() ABSL_LOCKS_EXCLUDED(mu_);
  // Sends the last status and log lines, deregisters, then Stop(). OK if it was not registered.
  absl::Status Deregister(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);
  // Stops both threads; source and sink are not called afterwards. Must not be called from the
  // sink. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_, join_mu_);

 private:
  using Stub = ControllerStubs::Stub;
  using HeartbeatStream = ClientStream<cluster::v1::WorkerStatus, cluster::v1::Directive>;

  WorkerAgent(const WorkerAgentOptions& options, StatusSource& source, DirectiveSink& sink,
              LogRing* log, const Clock& clock);

  const std::string& name() const { return options_.identity.worker(); }

  // The controller that the worker is registered with; waits for one until `deadline`, then null.
  std::shared_ptr<Stub> AwaitLeader(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

  void Control() ABSL_LOCKS_EXCLUDED(mu_);
  // One registration and the stream that follows; returns why it ended.
  absl::Status Session(const std::string& address) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<cluster::v1::RegisterReply> Register(Stub& stub) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Beat(Stub& stub) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status BeatOn(HeartbeatStream& stream) ABSL_LOCKS_EXCLUDED(mu_);
  // Reads the remaining directives of a broken stream.
  void TakeRest(HeartbeatStream& stream);
  // Sends one status; unsent log lines go with the next one.
  absl::Status SendStatus(HeartbeatStream& stream, int64_t sequence);
  void Fence(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);
  void EndWork(const std::string& reason);
  // Fences the worker if the controller was unreachable for lost_after.
  void CheckContact() ABSL_LOCKS_EXCLUDED(mu_);
  // How long a wait may last before CheckContact is due.
  absl::Duration UntilLost() const ABSL_LOCKS_EXCLUDED(mu_);
  // Sleeps; returns false if the agent is stopping.
  bool Pause(absl::Duration wait) ABSL_LOCKS_EXCLUDED(mu_);
  bool ending() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return stopping_ || leaving_;
  }

  static WorkerAgentOptions WithDefaults(WorkerAgentOptions options);

  const WorkerAgentOptions options_;
  StatusSource& source_;
  LogRing* const log_;
  const Clock& clock_;
  ControllerStubs stubs_;
  DirectiveQueue queue_;

  // Used by the Control thread only.
  absl::Duration interval_ = absl::Seconds(1);
  bool beaten_ = false;  // the session sent more than its first status
  cluster::v1::WorkerStatus unsent_log_;

  mutable Mutex mu_;
  CondVar cv_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool leaving_ ABSL_GUARDED_BY(mu_) = false;  // Deregister: Control ends after the last status
  bool control_ended_ ABSL_GUARDED_BY(mu_) = false;
  bool beat_now_ ABSL_GUARDED_BY(mu_) = false;
  bool connected_ ABSL_GUARDED_BY(mu_) = false;
  int64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;  // 0: none, or fenced
  std::string worker_ ABSL_GUARDED_BY(mu_);
  std::string controller_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Stub> stub_ ABSL_GUARDED_BY(mu_);  // to the current controller
  absl::Duration lost_after_ ABSL_GUARDED_BY(mu_) = absl::Seconds(2);
  absl::Time last_contact_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<HeartbeatStream> stream_ ABSL_GUARDED_BY(mu_);

  Mutex join_mu_;
  std::thread control_ ABSL_GUARDED_BY(join_mu_);
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_WORKER_WORKER_AGENT_H_
