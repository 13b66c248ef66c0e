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
#include "freshet/reward/v1/reward_service.pb.h"
#include "freshet/trainer/v1/trainer_service.pb.h"

namespace freshet {

// The trajectory stores of a cluster. Thread-safe.
class JobStores {
 public:
  virtual ~JobStores() = default;
  // Opens the store of options.job, or makes it. The caller may keep it as long as it likes; the
  // store of a job may be open several times. UNAVAILABLE: the backend cannot be reached.
  // FAILED_PRECONDITION: the store is of another generation than options.generation.
  virtual absl::StatusOr<std::shared_ptr<TrajectoryStore>> Open(const StoreOptions& options) = 0;
  // The store of a job that has one; NOT_FOUND otherwise.
  virtual absl::StatusOr<std::shared_ptr<TrajectoryStore>> Find(const std::string& job) = 0;
  // Removes everything that the datastore holds of the job except its record: store, events and
  // sample rows. Call it when nobody works on the job. Idempotent. FAILED_PRECONDITION: another
  // controller leads, or the id belongs to a newer job, whose data stays.
  virtual absl::Status Delete(const JobRemoval& removal) = 0;
  // Frees what an ended job does not need: bytes already marked for deletion and, unless the job is
  // resumable, the bytes of all samples. The ledger stays. Idempotent; called often. Errors as of
  // Delete.
  virtual absl::Status Free(const JobRemoval& /*removal*/, bool /*resumable*/) {
    return absl::OkStatus();
  }
  // RESOURCE_EXHAUSTED with the stats while the backend has no room for new samples; OK when it
  // has, or cannot be asked. Asked often.
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
  // Hands every chunk to `sink`, whose error ends the export.
  virtual absl::Status ExportCheckpoint(
      const std::string& address, const trainer::v1::ExportCheckpointRequest& request,
      absl::Duration deadline,
      const std::function<absl::Status(const trainer::v1::CheckpointChunk&)>& sink) = 0;
  virtual absl::Status DeleteJobFiles(const std::string& address, const std::string& job,
                                      absl::Duration deadline) = 0;
};

// Calls to reward workers, by address. Thread-safe.
class RewardGateway {
 public:
  virtual ~RewardGateway() = default;
  virtual absl::StatusOr<reward::v1::ScoreReply> Score(const std::string& address,
                                                       const reward::v1::ScoreRequest& request,
                                                       absl::Duration deadline) = 0;
};

// Figures of one job that has not ended.
struct JobGauges {
  std::string id;
  std::string name;
  job::v1::JobState state = job::v1::JOB_STATE_UNSPECIFIED;
  int64_t staleness_bound = 0;
  std::string blocking_edge;  // while it is stalled, else ""
  absl::Duration stalled_for;
  int64_t evaluations_skipped = 0;
  absl::Time last_step;  // infinite past without one
  std::optional<double> eval_accuracy;
  // Bounds of the store.
  int64_t group_size = 1;
  int64_t capacity_groups = 0;
  int64_t max_queued_prompts = 0;
  int64_t max_in_flight_groups = 0;
  bool has_stats = false;
  StoreStats stats;
  // Since when the oldest group of each state is there; infinite future without one.
  std::array<absl::Time, kNumGroupStates> oldest{};
};

// Hears what goes on, for metrics. Called from several threads; must be quick. Thread-safe.
class ControllerObserver {
 public:
  virtual ~ControllerObserver() = default;
  // Whether the datastore answers; said a few times per second.
  virtual void OnDatastore(const absl::Status& /*status*/) {}
  // False twice: when a term begins to end, and after its last report.
  virtual void OnLeading(bool /*leading*/) {}
  virtual void OnJob(const JobGauges& /*gauges*/) {}
  virtual void OnJobGone(const std::string& /*id*/) {}
  // The leader has written the end of a job: SUCCEEDED, FAILED or CANCELLED.
  virtual void OnJobEnded(job::v1::JobState /*state*/) {}
  virtual void OnWorkers(const std::vector<Member>& /*workers*/) {}
  virtual void OnWorkerLost(cluster::v1::Role /*role*/) {}
  // The work of a worker ended with an error.
  virtual void OnWorkFailed(cluster::v1::Role /*role*/) {}
  // All pools of the cluster, about once a second while this controller leads.
  virtual void OnPools(const std::vector<PoolStats>& /*pools*/) {}
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_JOB_PORTS_H_
