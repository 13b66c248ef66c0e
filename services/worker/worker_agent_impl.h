#ifndef FRESHET_SERVICES_WORKER_WORKER_AGENT_IMPL_H_
#define FRESHET_SERVICES_WORKER_WORKER_AGENT_IMPL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "services/runtime/client_stream.h"
#include "services/worker/controller_stubs.h"
#include "services/worker/directive_queue.h"
#include "services/worker/worker_agent.h"

namespace freshet::runtime {

// Owns the thread that maintains registration and stream; the queue owns the sink's thread.
class WorkerAgent::Impl {
 public:
  Impl(const WorkerAgentOptions& options, StatusSource& source, DirectiveSink& sink, LogRing* log,
       const Clock& clock)
      : options_(WithDefaults(options)),
        source_(source),
        log_(log),
        clock_(clock),
        stubs_(options_.channel),
        queue_(sink, options.max_pending_directives) {}
  ~Impl() { Stop(); }

  // Opens the channel to the first controller, which validates the options.
  absl::Status Open() { return stubs_.Get(options_.controllers.front()).status(); }
  void Begin() ABSL_LOCKS_EXCLUDED(join_mu_) {
    MutexLock lock(join_mu_);
    control_ = std::thread([this] { Control(); });
  }
  void Stop() ABSL_LOCKS_EXCLUDED(mu_, join_mu_);
  absl::Status Deregister(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);
  void SendStatusNow() ABSL_LOCKS_EXCLUDED(mu_);

  std::string worker() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return worker_;
  }
  bool connected() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return connected_;
  }
  std::string controller() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return controller_;
  }

  // Runs `call(stub, context, epoch)` against the current leader, retrying until it is answered.
  template <typename Call>
  absl::Status CallLeader(const Call& call) ABSL_LOCKS_EXCLUDED(mu_);
  const std::string& name() const { return options_.identity.worker(); }

 private:
  using Stub = ControllerStubs::Stub;
  using HeartbeatStream = ClientStream<cluster::v1::WorkerStatus, cluster::v1::Directive>;
  struct Leader {
    std::shared_ptr<Stub> stub;
    int64_t epoch = 0;
  };

  // The controller that the worker is registered with; waits for one until `deadline`.
  std::optional<Leader> AwaitLeader(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);

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

#endif  // FRESHET_SERVICES_WORKER_WORKER_AGENT_IMPL_H_
