#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_JOB_DRIVER_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_JOB_DRIVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "controller/autoscale/autoscaler.h"
#include "controller/cluster/pool_scaler.h"
#include "controller/cluster/worker_hub.h"
#include "controller/jobs/driver/job_evaluations.h"
#include "controller/jobs/driver/job_inputs.h"
#include "controller/jobs/driver/job_ports.h"
#include "controller/jobs/driver/job_workers.h"
#include "controller/jobs/driver/reservations.h"
#include "controller/jobs/plan/buffer_ages.h"
#include "controller/jobs/plan/controller_timing.h"
#include "controller/jobs/plan/retention.h"
#include "controller/jobs/plan/watchdog.h"
#include "controller/jobs/record/job_registry.h"
#include "dataset/prompt_feeder.h"
#include "datastore/event_log.h"

namespace freshet {

// What the drivers of a term share. All of it outlives them.
struct DriverContext {
  JobRegistry& registry;
  WorkerHub& hub;
  Reservations& reservations;
  EventLog& events;
  JobStores& stores;
  TrainerGateway& trainers;
  RewardGateway& rewards;
  ControllerObserver& observer;
  Autoscaler& pools;
  PoolScaler& scaler;  // may take a second to answer
  const Clock& clock;
  ControllerTiming timing;
  RetentionOptions retention;
  DataRoots roots;  // of the files that jobs name
  int64_t fence = 0;
};

// Frees what the datastore need not keep of a job that has ended. Failures are logged.
void FreeEnded(const DriverContext& context, const JobRecord& record);

// State of a running job that is in nobody's record.
struct JobLive {
  std::string waits_for;
  std::map<std::string, int64_t> groups;  // by state
  std::map<std::string, int64_t> ended;   // by reason
  std::vector<DeadLetter> dead;           // newest first
};

// Drives one job that has left the queue, from the opening of its model and data to its end: gives
// workers their assignments, feeds prompts, sweeps, evaluates, watches, and moves the record. A new
// leader's driver goes on where the former one stopped: everything it needs is in the record, the
// store and what the workers report.
// A failure of the datastore is waited out; work goes on meanwhile. Thread-safe.
class JobDriver {
 public:
  // `record` as of now. Its assignments are in force from here on; nothing runs before Start.
  JobDriver(const DriverContext& context, const JobRecord& record);
  // Stop().
  ~JobDriver();

  void Start();
  // Asks for what Stop waits for, so that several drivers end side by side.
  void RequestStop();
  // Ends the driver, not the job. Idempotent.
  void Stop();
  // The job has ended, or is gone: the driver has nothing left to do.
  bool finished() const ABSL_LOCKS_EXCLUDED(mu_);

  JobLive Live() const ABSL_LOCKS_EXCLUDED(mu_);
  // What the job asks of its pool, as of the last turn.
  JobDemand Demand() const ABSL_LOCKS_EXCLUDED(mu_);
  // UNAVAILABLE: the data is not open yet. Else see freshet::FetchRows.
  absl::StatusOr<cluster::v1::FetchRowsReply> FetchRows(
      const cluster::v1::FetchRowsRequest& request) const ABSL_LOCKS_EXCLUDED(mu_);
  void ReportEvaluation(const cluster::v1::ReportEvaluationRequest& report)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run(std::stop_token stop);
  // One look at everything. True when there is nothing left to do.
  absl::StatusOr<bool> Turn();
  // The workers: assignments in line with who is there.
  absl::Status Reconcile(JobRecord& record, const std::vector<Member>& workers,
                         const WorkersReport& report);
  // Model, data, store and feeder, step by step; OK when all are there.
  absl::Status Open(const JobRecord& record, const WorkersReport& report);
  absl::Status OpenStore(const JobRecord& record);
  std::shared_ptr<const cluster::v1::Assign> BaseAssign(const JobRecord& record) const;
  // Pause, resume, STARTING -> RUNNING.
  absl::Status MoveState(JobRecord& record, const WorkersReport& report);
  // Cancelled: true when the last checkpoint is written, or not to be waited for any longer.
  bool TrainerLetGo(const WorkersReport& report, absl::Time now);
  absl::Status LookAtStore();
  // Rows of metrics since the last look. `save`: the record is written at once.
  absl::Status ReadProgress(JobRecord& record, bool save);
  absl::Status Evaluate(JobRecord& record, const WorkersReport& report, absl::Time now);
  // Reason for ending the job with an error, "" to go on.
  std::string FindFailure(const WorkersReport& report);
  bool FinalEvaluationOver(const JobRecord& record, absl::Time now);
  absl::Status Watch(JobRecord& record, const WorkersReport& report, absl::Time now);
  JobDemand MeasureDemandOf(const JobRecord& record, const WorkersReport& report,
                            const JobGauges& gauges, absl::Time now) const;
  JobGauges Measure(const JobRecord& record, const Blockage& blockage, absl::Duration stalled_for,
                    absl::Time now);
  // Ends the job. True when that is stored.
  absl::StatusOr<bool> Finish(job::v1::JobState state, const std::string& reason);
  void StopFeeder();
  absl::StatusOr<JobRecord> Change(const std::function<absl::Status(JobRecord&)>& change);

  const DriverContext context_;
  const std::string id_;
  const job::v1::JobSpec spec_;

  // Of the driver's thread.
  JobWorkers workers_;
  std::shared_ptr<TrajectoryStore> store_;
  std::shared_ptr<const cluster::v1::Assign> base_assign_;
  absl::Status opening_;  // why model, data or store are not there
  absl::Time open_retry_at_ = absl::InfinitePast();
  absl::Status store_status_;
  std::optional<StoreStats> stats_;
  std::optional<Explanation> explanation_;
  std::vector<DeadLetter> dead_;
  int64_t dead_read_ = 0;  // groups that had died when it was read
  DeathWatch deaths_;
  BufferAges ages_;
  int64_t progress_mark_ = -1;
  std::string progress_text_;
  absl::Time last_progress_;
  absl::Time last_step_ = absl::InfinitePast();
  int64_t last_committed_ = 0;  // before the first step
  std::string stalled_edge_;
  absl::Time saved_ = absl::InfinitePast();
  std::optional<absl::Time> cancelling_since_;
  int64_t cancel_sequence_ = 0;
  std::optional<absl::Time> trainer_done_since_;
  std::unique_ptr<PromptFeeder> feeder_;

  mutable Mutex mu_;
  std::shared_ptr<const JobInputs> inputs_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<JobEvaluations> evaluations_ ABSL_GUARDED_BY(mu_);
  absl::Status feeder_status_ ABSL_GUARDED_BY(mu_);
  JobLive live_ ABSL_GUARDED_BY(mu_);
  JobDemand demand_ ABSL_GUARDED_BY(mu_);
  bool finished_ ABSL_GUARDED_BY(mu_) = false;

  std::jthread feeder_thread_;
  std::stop_source stop_;
  std::thread thread_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_JOB_DRIVER_H_
