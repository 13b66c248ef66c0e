#ifndef FRESHET_TRAINER_SERVICE_TRAINING_WORK_H_
#define FRESHET_TRAINER_SERVICE_TRAINING_WORK_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/data_roots.h"
#include "base/fault_point.h"
#include "base/mutex.h"
#include "datastore/event_log.h"
#include "datastore/trajectory_store.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "services/worker/worker_role.h"
#include "trainer/checkpoint/checkpoint_choice.h"
#include "trainer/checkpoint/checkpoint_hook.h"
#include "trainer/loop/trainer_loop.h"
#include "trainer/service/evaluation_rows.h"
#include "trainer/service/learner_factory.h"
#include "trainer/service/training_events.h"
#include "trainer/service/training_listener.h"
#include "weights/weight_sync_observer.h"
#include "weights/weight_transport.h"

namespace freshet {

// The trainer's side of a job's weight plane.
class TrainerWeightPlane {
 public:
  virtual ~TrainerWeightPlane() = default;
  virtual std::shared_ptr<WeightTransport> transport() = 0;
  virtual std::unique_ptr<WeightStager> MakeStager() = 0;
  virtual void SetMembers(const cluster::v1::Members& members) = 0;
};

// Dependencies of a trainer process's works; all must outlive them.
struct TrainingContext {
  StoreOpener open_store;
  std::vector<std::string> store_arguments;  // with which child processes open it
  EventLog* events = nullptr;
  LearnerFactory* learners = nullptr;
  DataRoots roots;  // roots of the files that jobs name
  std::function<absl::StatusOr<std::unique_ptr<TrainerWeightPlane>>(const cluster::v1::Assign&)>
      open_weights;
  const Clock* clock = nullptr;
  FaultPoints* faults = nullptr;
  WeightSyncObserver* sync = nullptr;    // may be null
  TrainingListener* listener = nullptr;  // may be null
  std::string state_dir;                 // checkpoints are in STATE_DIR/jobs/JOB/checkpoints
  CheckpointHookOptions hook;            // without a program there is none
  double time_scale = 1.0;               // of the waits while the datastore is unreachable
};

std::string CheckpointRoot(const std::string& state_dir, const std::string& job);

// Trains one job: from its newest intact checkpoint that belongs to the store's history, redoing
// what was committed after it, or from the beginning. Writes metrics rows and samples to the job's
// event streams. While the datastore is unreachable they wait (EventOutbox), and are sent with the
// next step, at a stall, and at the end.
class TrainingWork final : public runtime::JobWork, private TrainerObserver {
 public:
  static absl::StatusOr<std::unique_ptr<runtime::JobWork>> Create(
      const cluster::v1::Assign& assign, const std::string& worker,
      runtime::ControllerCalls& controller, const TrainingContext& context);
  ~TrainingWork() override;

  // OK once the last step is done and saved, or after a stop, once the last committed step is
  // saved. UNAVAILABLE, for one, if the learner's state is lost (Learner::StateLost).
  absl::Status Run(std::stop_token stop) override;
  void FillStatus(cluster::v1::AssignmentStatus& status) const override;
  void FillLoad(cluster::v1::WorkerStatus& status) const override;
  void SetPaused(bool paused) override;
  void SetMembers(const cluster::v1::Members& members) override;
  void SaveCheckpoint() override;

 private:
  TrainingWork(cluster::v1::Assign assign, std::string worker, runtime::ControllerCalls& controller,
               const TrainingContext& context);

  absl::Status OnCommitted() override;
  absl::Status OnStep(const FinishedStep& report, const WeightSnapshot& weights) override;
  void OnStalled(const std::string& reason, absl::Duration waited) override;
  void OnCheckpoint(const absl::Status& status) override;
  void OnRest() override;

  absl::Status Train(std::stop_token stop);
  void NoteLostRanks(const absl::Status& status);
  absl::Status TrainFromNewest(std::stop_token stop);
  // Trains from `checkpoint`, or from the beginning if null. `passed_over`: newer ones that the
  // store rejects or that cannot be loaded. `damaged`: those that FindAllCheckpoints reported. Both
  // are set aside once the store has accepted this one.
  absl::Status TrainFrom(const FoundCheckpoint* checkpoint,
                         const std::vector<std::string>& passed_over,
                         const std::vector<std::string>& damaged, std::stop_token stop,
                         CheckpointTry::Stage& stage);
  absl::Status StartLearner(const FoundCheckpoint* checkpoint, std::stop_token stop);
  TrainerLoopOptions LoopOptions(const FoundCheckpoint* checkpoint) const;
  absl::Status RunLoop(const TrainerLoopOptions& options, bool save_loaded, std::stop_token stop,
                       CheckpointTry::Stage& stage);
  std::shared_ptr<CheckpointHook> MakeHook();
  // Waits until the hook has ended, or for `stop`.
  void AwaitHook(std::stop_token stop);
  void OnHookEnd(const HookedCheckpoint& checkpoint, const absl::Status& status);
  std::string CheckpointFolder() const;
  void SetPhase(cluster::v1::AssignmentStatus::State state, const std::string& waits_for);
  absl::Duration Waiting() const;

  const cluster::v1::Assign assign_;
  const std::string worker_;
  runtime::ControllerCalls& controller_;
  const TrainingContext& context_;
  std::unique_ptr<TrainerWeightPlane> weights_;
  std::unique_ptr<TrajectoryStore> redis_;
  std::unique_ptr<TrajectoryStore> store_;
  std::unique_ptr<TrainingEvents> events_;
  std::unique_ptr<EvaluationRows> evaluations_;  // null without evaluations
  std::shared_ptr<CheckpointHook> hook_;         // may be null
  StartedLearner learner_;
  // The store at the last commit and at the one before. The loop's first reading is at its start,
  // so a new process does not report the work of former steps again.
  StoreStats stats_before_;
  std::optional<StoreStats> stats_now_;
  absl::Time started_;
  absl::Time last_step_;

  mutable Mutex mu_;
  std::unique_ptr<TrainerLoop> loop_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<const Learner> training_ ABSL_GUARDED_BY(mu_);  // of loop_
  bool paused_ ABSL_GUARDED_BY(mu_) = false;
  cluster::v1::AssignmentStatus::State state_ ABSL_GUARDED_BY(mu_) =
      cluster::v1::AssignmentStatus::STATE_STARTING;
  std::string waits_for_ ABSL_GUARDED_BY(mu_);
  PolicyVersion policy_ ABSL_GUARDED_BY(mu_);
  double waited_ ABSL_GUARDED_BY(mu_) = 0;             // for samples, in finished steps
  double tokens_per_second_ ABSL_GUARDED_BY(mu_) = 0;  // of the last step
  // For the busy share in FillLoad.
  mutable absl::Time last_load_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  mutable double last_waited_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_TRAINING_WORK_H_
