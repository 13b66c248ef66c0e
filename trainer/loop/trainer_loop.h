#ifndef FRESHET_TRAINER_LOOP_TRAINER_LOOP_H_
#define FRESHET_TRAINER_LOOP_TRAINER_LOOP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/fault_point.h"
#include "base/mutex.h"
#include "datastore/trajectory_store.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/learner/learner.h"
#include "weights/weight_publisher.h"

namespace freshet {

struct TrainerLoopOptions {
  std::string trainer = "trainer-0";
  std::string job;
  PolicyVersion loaded;          // version of the weights that the learner holds
  std::string loaded_digest;     // over the uids that made it, to be the store's; "": unknown
  std::string request_id;        // EpochRequest::id of its OpenEpoch
  int64_t steps = 0;             // last step
  int64_t publish_every = 1;     // steps
  int64_t checkpoint_every = 0;  // steps; 0: only at the end
  int64_t keep_checkpoints = 2;
  std::optional<int64_t> always_keep_version;  // a reference policy's checkpoint
  std::string checkpoint_root;
  // Paths of checkpoints to set aside: see TidyCheckpoints.
  std::vector<std::string> passed_over;
  std::vector<std::string> damaged;
  std::vector<std::pair<std::string, std::string>> checkpoint_files;  // config, tokenizer
  uint64_t seed = 0;
  absl::Duration wait_slice = absl::Seconds(1);      // longest silent wait for a batch
  absl::Duration stall_warning = absl::Seconds(10);  // a wait this long names its reason
  double trace_ratio = 0;                            // share of the samples whose lives are logged
};

// One finished step, as seen by the loop.
struct FinishedStep {
  int64_t step = 0;
  PolicyVersion policy;  // that the step made
  TrainStepResult result;
  const std::vector<TrainGroup>* groups = nullptr;  // valid during the call
  double wait_seconds = 0;                          // for samples
  double train_seconds = 0;
  double checkpoint_seconds = 0;  // by which checkpoints held the loop up
  // The step was committed by a former process and is repeated from its journal: it publishes
  // nothing, and is reported because the former process may have died before its report.
  bool redo = false;
};

// What the loop tells its surroundings. Called on the loop's thread, unless said otherwise.
class TrainerObserver {
 public:
  virtual ~TrainerObserver() = default;
  // After CommitStep, before the weights go out: make the ledger rows durable enough to survive a
  // killed process.
  virtual absl::Status OnCommitted() = 0;
  // Weights are published; `weights` is the version for evaluations to pin.
  virtual absl::Status OnStep(const FinishedStep& report, const WeightSnapshot& weights) = 0;
  // A wait has lasted stall_warning or longer.
  virtual void OnStalled(const std::string& reason, absl::Duration waited) = 0;
  // A checkpoint was written and is durable, or why not. Called by the thread that writes it.
  virtual void OnCheckpoint(const absl::Status& /*status*/) {}
  // Time to send what could not be sent before: the job is paused, or a version is about to become
  // durable, after which its steps are not redone and not reported again.
  virtual void OnRest() {}
};

// The trainer's order of events (architecture, section 3): optimizer step -> CommitStep -> publish
// -> (asynchronously) checkpoint -> MarkDurable. Fault points: optimizer_step, commit, publish,
// checkpoint_write, checkpoint_rename, mark_durable; and redo, after a redone optimizer step.
// Run() is confined to one thread; at most one checkpoint is written at a time, on another.
class TrainerLoop {
 public:
  TrainerLoop(TrajectoryStore& store, Learner& learner, WeightPublisher& publisher,
              TrainerObserver& observer, const Clock& clock, FaultPoints& faults,
              TrainerLoopOptions options);
  ~TrainerLoop();

  // Opens an epoch, tidies the checkpoints (TidyCheckpoints), redoes the steps that were committed
  // after the loaded version, and publishes the last one, so that engines can start. When
  // `save_loaded`, also writes the loaded version as a checkpoint, so that a resume need not repeat
  // what led to it. OK, with part of the steps still to redo and nothing published, when `stop`
  // came first: call nothing but the destructor then. Redone steps that give other weights than the
  // committed ones are logged; what follows from them is of the lineage that the store says.
  // FAILED_PRECONDITION with epoch() still 0: the store does not take the loaded version, which is
  // of another history than its own.
  absl::Status Start(bool save_loaded, std::stop_token stop = {});

  // Trains until the last step or until `stop`, then writes a final checkpoint of what was
  // committed. Returns:
  //   OK: all steps done, or stopped.
  //   FAILED_PRECONDITION: loss or gradient not finite, fenced, or the job paused itself.
  absl::Status Run(std::stop_token stop);

  int64_t committed() const { return policy_.version; }
  // 0 until the store has opened one for the loaded version.
  int64_t epoch() const { return epoch_; }

  // While paused, no batch is claimed; a step under way is finished. Thread-safe.
  void SetPaused(bool paused) { paused_.store(paused); }
  // For how long a batch has been waited for now; zero while the loop trains. Thread-safe.
  absl::Duration waiting() const;
  // Makes a checkpoint of the next committed step, beside those of the interval. Thread-safe.
  void RequestCheckpoint() { checkpoint_requested_.store(true); }

 private:
  absl::StatusOr<std::optional<NextBatchReply>> AwaitBatch(int64_t step, std::stop_token stop,
                                                           double& waited_seconds);
  absl::Status Step(int64_t step, const NextBatchReply& batch, double waited_seconds);
  absl::StatusOr<CommitReceipt> Redo(const JournalEntry& entry);
  absl::Status Train(int64_t step, const std::vector<TrainGroup>& groups, TrainStepResult& result);
  void Committed(const CommitReceipt& receipt);
  void TraceTrained(int64_t step, const std::vector<TrainGroup>& groups) const;
  absl::Status Checkpoint();
  absl::Status JoinCheckpoint();
  absl::Status WriteCheckpointAndMark(const CheckpointContents& contents);

  TrajectoryStore& store_;
  Learner& learner_;
  WeightPublisher& publisher_;
  TrainerObserver& observer_;
  const Clock& clock_;
  FaultPoints& faults_;
  const TrainerLoopOptions options_;
  int64_t epoch_ = 0;
  int64_t writer_epoch_ = 0;  // of its checkpoints
  PolicyVersion policy_;
  std::string digest_;
  bool uncommitted_ = false;       // the learner holds a step that is not committed
  int64_t checkpointed_ = -1;      // version of the last checkpoint begun
  double checkpoint_seconds_ = 0;  // since the last report
  std::atomic<bool> paused_{false};
  std::atomic<bool> checkpoint_requested_{false};
  std::atomic<int64_t> waiting_since_{0};  // ns since the epoch; 0 while it trains

  Mutex mu_;
  absl::Status checkpoint_status_ ABSL_GUARDED_BY(mu_);
  std::jthread checkpoint_thread_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LOOP_TRAINER_LOOP_H_
