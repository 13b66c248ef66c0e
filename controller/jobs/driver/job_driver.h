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

// Dependencies shared by the drivers of a term; they outlive the drivers.
struct DriverContext {
  JobRegistry& registry;
  WorkerHub& hub;
  Reservations& reservations;
  EventLog& events;
  JobStores& stores;
  TrainerGateway& trainers;
  ControllerObserver& observer;
  Autoscaler& pools;
  PoolScaler& scaler;  // a call may take a second
  const Clock& clock;
  ControllerTiming timing;
  RetentionOptions retention;
  DataRoots roots;  // roots of the files that jobs name
  int64_t fence = 0;
};

// Frees the datastore's data of an ended job that is no longer needed. Failures are logged.
void FreeEnded(const DriverContext& context, const JobRecord& record);

// State of a running job that is not stored in its record.
struct JobLive {
  std::string waits_for;
  std::map<std::string, int64_t> groups;   // by state
  std::map<std::string, int64_t> ended;    // by reason
  std::map<std::string, int64_t> curated;  // as in Job
  std::vector<DeadLetter> dead;            // newest first
  std::vector<job::v1::Rank> ranks;        // of the trainer, if several
};

// Sets groups, ended, curated and dead_groups.
void SetCounts(const JobLive& live, job::v1::Job& job);

// Drives one job that has left the queue, from loading its model and data to its end: assigns
// workers, feeds prompts, sweeps the store, evaluates, watches for stalls, and updates the record.
// A new leader's driver continues where the former one stopped: all state is in the record, the
// store and the workers' reports. Datastore failures are waited out while workers keep running.
// Thread-safe.
class JobDriver {
 public:
  // `record` is the current record. Its assignments take effect now; nothing runs before Start.
  JobDriver(const DriverContext& context, const JobRecord& record);
  // Calls Stop().
  ~JobDriver();

  void Start();
  // Begins stopping without waiting, so that several drivers can stop in parallel.
  void RequestStop();
  // Stops the driver, not the job. Idempotent.
  void Stop();
  // The job has ended or was deleted.
  bool finished() const ABSL_LOCKS_EXCLUDED(mu_);

  JobLive Live() const ABSL_LOCKS_EXCLUDED(mu_);
  // The job's demand as of the last turn.
  JobDemand Demand() const ABSL_LOCKS_EXCLUDED(mu_);
  // UNAVAILABLE: the data is not loaded yet. Otherwise see freshet::FetchRows.
  absl::StatusOr<cluster::v1::FetchRowsReply> FetchRows(
      const cluster::v1::FetchRowsRequest& request) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run(std::stop_token stop);
  // One iteration of the control loop. Returns true if nothing is left to do.
  absl::StatusOr<bool> Turn();
  // Matches assignments to the available workers.
  absl::Status Reconcile(JobRecord& record, const std::vector<Member>& workers,
                         const WorkersReport& report);
  // Opens model, data, store and feeder, step by step; OK once all are open.
  absl::Status Open(const JobRecord& record, const WorkersReport& report);
  absl::Status OpenStore(const JobRecord& record);
  std::shared_ptr<const cluster::v1::Assign> BaseAssign(const JobRecord& record) const;
  // Handles pause, resume and STARTING -> RUNNING.
  absl::Status MoveState(JobRecord& record, const WorkersReport& report);
  // Why the job ends before its last step although it has not failed, or "": see FindTeamEnd.
  absl::StatusOr<std::string> FindEndWithTeam(const JobRecord& record, const WorkersReport& report,
                                              absl::Time now);
  // For a job that ends early: true once the trainer has stopped, or a cancelled job's deadline for
  // its last checkpoint has passed.
  bool TrainerLetGo(const WorkersReport& report, bool cancelled, absl::Time now);
  // Ends a job whose trainer has let go or is lost. If that has left trained steps unsaved or a
  // claimed step untrained, a trainer starts again to train and save them, unless
  // FindTeamEndFailure fails the job.
  absl::StatusOr<bool> FinishWithTeam(JobRecord& record, const WorkersReport& report);
  absl::Status LookAtStore();
  // Reads the metrics rows added since the last call. `save`: write the record at once.
  absl::Status ReadProgress(JobRecord& record, bool save);
  absl::Status Evaluate(JobRecord& record, const WorkersReport& report, absl::Time now);
  // Reason to fail the job; "" to continue.
  std::string FindFailure(const WorkersReport& report);
  bool FinalEvaluationOver(const JobRecord& record, absl::Time now);
  // Takes what the store counted at the last look.
  void TakeCounts(JobLive& live) const;
  absl::Status Watch(JobRecord& record, const WorkersReport& report, absl::Time now);
  JobDemand MeasureDemandOf(const JobRecord& record, const WorkersReport& report,
                            const JobGauges& gauges, absl::Time now) const;
  bool AllSteps() const;  // whether the last step is committed
  JobGauges Measure(const JobRecord& record, const Blockage& blockage, absl::Duration stalled_for,
                    absl::Time now);
  // Ends the job. Returns true once that is stored.
  absl::StatusOr<bool> Finish(job::v1::JobState state, const std::string& reason);
  void StopFeeder();
  absl::StatusOr<JobRecord> Change(const std::function<absl::Status(JobRecord&)>& change);

  const DriverContext context_;
  const std::string id_;
  const job::v1::JobSpec spec_;

  // Used by the driver's thread only.
  JobWorkers workers_;
  std::shared_ptr<TrajectoryStore> store_;
  std::optional<JobEvaluations> evaluations_;  // uses store_; absent if the job has no eval
  std::shared_ptr<const cluster::v1::Assign> base_assign_;
  absl::Status opening_;  // why model, data or store are not open
  absl::Time open_retry_at_ = absl::InfinitePast();
  absl::Status store_status_;
  std::optional<StoreStats> stats_;
  std::optional<Explanation> explanation_;
  std::vector<DeadLetter> dead_;
  int64_t dead_read_ = 0;  // number of dead groups when `dead_` was read
  DeathWatch deaths_;
  BufferAges ages_;
  int64_t progress_mark_ = -1;
  std::string progress_text_;
  absl::Time last_progress_;
  absl::Time last_step_ = absl::InfinitePast();
  int64_t last_committed_ = 0;  // 0: no step yet
  std::string stalled_edge_;
  absl::Time saved_ = absl::InfinitePast();
  std::optional<absl::Time> ending_since_;
  int64_t ending_sequence_ = 0;
  absl::Time team_unknown_at_ = absl::InfinitePast();  // no patience is counted before
  std::string team_end_;  // why the job ends with its team; "" if it does not
  // Ends with its team that left trained steps unsaved, under this leader and since the last save.
  int unsaved_ends_ = 0;
  int64_t saved_at_unsaved_end_ = 0;  // groups that had ever been saved at the last of them
  std::optional<absl::Time> trainer_done_since_;
  std::unique_ptr<PromptFeeder> feeder_;

  mutable Mutex mu_;
  std::shared_ptr<const JobInputs> inputs_ ABSL_GUARDED_BY(mu_);
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
