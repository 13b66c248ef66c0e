#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_JOB_PORTS_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_JOB_PORTS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/autoscale/autoscaler.h"
#include "controller/cluster/membership.h"
#include "datastore/job_records.h"
#include "datastore/trajectory_store.h"
#include "freshet/job/v1/job_service.pb.h"
#include "freshet/trainer/v1/trainer_service.pb.h"

namespace freshet {

// The trajectory stores of a cluster. Thread-safe.
class JobStores {
 public:
  virtual ~JobStores() = default;
  // Opens or creates the store of options.job. The caller may keep it indefinitely; a store may be
  // open several times. UNAVAILABLE: the backend is unreachable. FAILED_PRECONDITION: the store's
  // generation is not options.generation.
  virtual absl::StatusOr<std::shared_ptr<TrajectoryStore>> Open(const StoreOptions& options) = 0;
  // Opens the job's existing store; NOT_FOUND if there is none.
  virtual absl::StatusOr<std::shared_ptr<TrajectoryStore>> Find(const std::string& job) = 0;
  // Removes everything that the datastore holds of the job except its record: store, events and
  // sample rows. Call it only when no worker uses the job. Idempotent. FAILED_PRECONDITION: another
  // controller leads, or the id belongs to a newer job, whose data is kept.
  virtual absl::Status Delete(const JobRemoval& removal) = 0;
  // Frees data that an ended job does not need: bytes already marked for deletion and, unless the
  // job is resumable, the bytes of all samples. The ledger is kept. Idempotent; called often.
  // Errors as for Delete.
  virtual absl::Status Free(const JobRemoval& /*removal*/, bool /*resumable*/) {
    return absl::OkStatus();
  }
  // RESOURCE_EXHAUSTED with the stats while the backend has no room for new samples. OK if it has
  // room or does not answer. Called often.
  virtual absl::Status CheckSpace() { return absl::OkStatus(); }
};

// Calls to trainers, by address. Errors: those of the service, UNAVAILABLE, DEADLINE_EXCEEDED.
// Thread-safe.
class TrainerGateway {
 public:
  virtual ~TrainerGateway() = default;
  virtual absl::StatusOr<trainer::v1::ModelBundle> DescribeModel(const std::string& address,
                                                                 const job::v1::JobSpec& spec,
                                                                 absl::Duration deadline) = 0;
  virtual absl::StatusOr<trainer::v1::ListCheckpointsReply> ListCheckpoints(
      const std::string& address, const std::string& job, absl::Duration deadline) = 0;
  // Passes every chunk to `sink`; an error of `sink` ends the export.
  virtual absl::Status ExportCheckpoint(
      const std::string& address, const trainer::v1::ExportCheckpointRequest& request,
      absl::Duration deadline,
      const std::function<absl::Status(const trainer::v1::CheckpointChunk&)>& sink) = 0;
  virtual absl::Status DeleteJobFiles(const std::string& address, const std::string& job,
                                      absl::Duration deadline) = 0;
};

struct JobGauges {
  std::string id;
  std::string name;
  job::v1::JobState state = job::v1::JOB_STATE_UNSPECIFIED;
  int64_t staleness_bound = 0;
  std::string blocking_edge;  // while stalled, else ""
  absl::Duration stalled_for;
  int64_t evaluations_skipped = 0;
  // Infinite past before the first step and after the last one.
  absl::Time last_step = absl::InfinitePast();
  std::vector<job::v1::Evaluation> evaluations;  // the newest of each set
  // Bounds of the store.
  int64_t group_size = 1;
  int64_t capacity_groups = 0;
  int64_t max_queued_prompts = 0;
  int64_t max_in_flight_groups = 0;
  std::map<std::string, int64_t> max_calls;  // of components with a limit
  bool has_stats = false;
  StoreStats stats;
  // When the oldest group entered each state; infinite future if none.
  std::array<absl::Time, kNumGroupStates> oldest{};
};

// Receives events for metrics. Called from several threads; must return quickly. Thread-safe.
class ControllerObserver {
 public:
  virtual ~ControllerObserver() = default;
  // Whether the datastore answers; called a few times per second.
  virtual void OnDatastore(const absl::Status& /*status*/) {}
  // Called with false twice: when a term begins to end, and after its last report.
  virtual void OnLeading(bool /*leading*/) {}
  virtual void OnJob(const JobGauges& /*gauges*/) {}
  virtual void OnJobGone(const std::string& /*id*/) {}
  // The leader has stored the end of a job: SUCCEEDED, FAILED or CANCELLED.
  virtual void OnJobEnded(job::v1::JobState /*state*/) {}
  virtual void OnWorkers(const std::vector<Member>& /*workers*/) {}
  virtual void OnWorkerLost(cluster::v1::Role /*role*/) {}
  virtual void OnWorkFailed(cluster::v1::Role /*role*/) {}
  // All pools, about once a second while this controller leads.
  virtual void OnPools(const std::vector<PoolStats>& /*pools*/) {}
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_JOB_PORTS_H_
