#ifndef FRESHET_CONTROLLER_CLUSTER_WORKER_HUB_H_
#define FRESHET_CONTROLLER_CLUSTER_WORKER_HUB_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "controller/cluster/directive_plan.h"
#include "controller/cluster/membership.h"
#include "controller/cluster/pool_scaler.h"
#include "controller/cluster/worker_logs.h"
#include "datastore/job_records.h"

namespace freshet {

// The controller's end of one worker's heartbeat stream. Thread-safe; neither method blocks.
class DirectiveStream {
 public:
  virtual ~DirectiveStream() = default;
  // Returns false if the stream has ended or its queue is full.
  virtual bool Send(const cluster::v1::Directive& directive) = 0;
  virtual void Finish(const absl::Status& status) = 0;
};

struct WorkerHubOptions {
  MembershipOptions membership;
  absl::Duration heartbeat_interval = absl::Seconds(1);
};

// The workers of a cluster as the active controller sees them: registration, heartbeats, losses,
// and the directives to each worker. Lives for one term of leadership.
//
// State that must survive the controller (epochs, lost workers, wanted numbers) is written to the
// record store under the leader's fence before it takes effect. A worker counts as lost only after
// that is stored, so no other controller can consider it alive.
// Errors: those of the record store. Thread-safe.
class WorkerHub final : public PoolScaler {
 public:
  // Reads the stored cluster. `records` and `clock` must outlive the hub.
  static absl::StatusOr<std::unique_ptr<WorkerHub>> Create(JobRecordStore& records, int64_t fence,
                                                           const Clock& clock,
                                                           WorkerHubOptions options);

  // See WorkerService. INVALID_ARGUMENT names the field.
  absl::StatusOr<cluster::v1::RegisterReply> Register(const cluster::v1::RegisterRequest& request)
      ABSL_LOCKS_EXCLUDED(write_mu_, mu_);
  absl::Status Deregister(const std::string& worker, int64_t epoch)
      ABSL_LOCKS_EXCLUDED(write_mu_, mu_);
  // Handles a status received over `stream`. The first one makes it the worker's current stream.
  // FAILED_PRECONDITION: the epoch is fenced. Does not block.
  absl::Status OnStatus(const std::shared_ptr<DirectiveStream>& stream,
                        const cluster::v1::WorkerStatus& status) ABSL_LOCKS_EXCLUDED(mu_);
  void OnStreamEnd(const DirectiveStream* stream) ABSL_LOCKS_EXCLUDED(mu_);

  // Declares silent workers lost and returns them. Call it often, from one thread.
  absl::StatusOr<std::vector<LostWorker>> Check() ABSL_LOCKS_EXCLUDED(write_mu_, mu_);

  // Replaces all assignments that `job` wants; {} withdraws them.
  void SetDesired(const std::string& job, std::vector<DesiredAssignment> desired)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Sends one directive over the worker's stream. UNAVAILABLE: there is no stream, or the epoch
  // differs. Never returns FAILED_PRECONDITION.
  absl::Status Send(const std::string& worker, int64_t epoch,
                    const cluster::v1::Directive& directive) ABSL_LOCKS_EXCLUDED(mu_);

  // All workers by name, including lost ones.
  std::vector<Member> Workers() const ABSL_LOCKS_EXCLUDED(mu_);
  // FAILED_PRECONDITION unless this epoch of the worker is in force.
  absl::Status CheckEpoch(const std::string& worker, int64_t epoch) const ABSL_LOCKS_EXCLUDED(mu_);

  absl::StatusOr<int32_t> SetWanted(const std::string& role, const std::string& pool,
                                    int32_t replicas, Surplus surplus) override
      ABSL_LOCKS_EXCLUDED(write_mu_, mu_);
  std::map<std::string, int32_t> Wanted() override ABSL_LOCKS_EXCLUDED(mu_);

  // Increases whenever a worker joins, leaves, or reports another state of its work.
  uint64_t ChangeCount() const ABSL_LOCKS_EXCLUDED(mu_);
  // Blocks until ChangeCount() > seen, `timeout` of real time has passed, Close or Wake.
  uint64_t AwaitChange(uint64_t seen, absl::Duration timeout) const ABSL_LOCKS_EXCLUDED(mu_);
  // Counts as a change. For events outside the hub that drivers wait for.
  void Wake() ABSL_LOCKS_EXCLUDED(mu_);

  // Ends all streams with `status` and all waits. Later calls are refused.
  void Close(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  WorkerLogs& log() { return log_; }

 private:
  struct Session {
    std::shared_ptr<DirectiveStream> stream;
    std::string worker;
    int64_t epoch = 0;
    DirectivePlan plan;
    bool flushing = false;
  };

  WorkerHub(JobRecordStore& records, int64_t fence, const Clock& clock, WorkerHubOptions options,
            const cluster::v1::ClusterRecord& stored);

  // Stores the cluster with `change` applied.
  absl::Status Store(const std::function<void(Membership&)>& change,
                     const std::map<std::string, int32_t>* wanted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mu_) ABSL_LOCKS_EXCLUDED(mu_);
  // Removes and returns the worker's session unless it belongs to `except_epoch`.
  std::shared_ptr<Session> TakeSession(const std::string& worker, int64_t except_epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends the pending directives. Only one thread at a time does so for a session.
  void Flush(const std::shared_ptr<Session>& session) ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<DesiredAssignment> DesiredOf(const Session& session) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Changed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  JobRecordStore& records_;
  const int64_t fence_;
  const Clock& clock_;
  const WorkerHubOptions options_;
  WorkerLogs log_;

  // Orders writers of the record; held during calls to the record store.
  Mutex write_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  mutable Mutex mu_;
  mutable CondVar changed_;
  Membership membership_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int32_t> wanted_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mu_);       // by worker
  std::map<std::string, std::vector<DesiredAssignment>> desired_ ABSL_GUARDED_BY(mu_);  // by job
  uint64_t changes_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_CLUSTER_WORKER_HUB_H_
