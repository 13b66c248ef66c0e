#ifndef FRESHET_TRAINER_LOOP_TRAINER_LOOP_H_
#define FRESHET_TRAINER_LOOP_TRAINER_LOOP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/fault_point.h"
#include "base/mutex.h"
#include "datastore/trajectory_store.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_hook.h"
#include "trainer/checkpoint/checkpoint_score.h"
#include "trainer/learner/learner.h"
#include "trainer/loop/generated_files.h"
#include "weights/weight_publisher.h"

namespace freshet {

using StateFile = std::pair<std::string, std::string>;  // name and bytes

struct TrainerLoopOptions {
  std::string trainer = "trainer-0";
  std::string job;
  PolicyVersion loaded;          // version of the learner's weights
  std::string loaded_digest;     // over its uids; must match the store's. "": unknown
  std::string request_id;        // EpochRequest::id of its OpenEpoch
  int64_t steps = 0;             // last step
  int64_t publish_every = 1;     // steps
  int64_t checkpoint_every = 0;  // steps; 0: only at the end
  CheckpointRetention retention;
  // Returns the evaluations that have ended since the last call; called on the thread that writes
  // checkpoints. May be empty.
  std::function<std::vector<CheckpointScore>()> scores;
  std::shared_ptr<CheckpointHook> hook;             // may be null
  std::shared_ptr<const GeneratedFiles> generated;  // of a job of kind generate; otherwise null
  std::string checkpoint_root;
  // Paths of checkpoints to set aside: see TidyCheckpoints.
  std::vector<std::string> passed_over;
  std::vector<std::string> damaged;
  std::vector<std::pair<std::string, std::string>> checkpoint_files;  // config, tokenizer
  Dtype checkpoint_dtype = Dtype::kF32;                               // kF32 or kBf16
  // Returns a further file for the checkpoint of the committed version; called on the loop's
  // thread: after CommitStep and before the version is published, or when a checkpoint begins that
  // was not due with its step. May be empty.
  std::function<StateFile()> state_file;
  uint64_t seed = 0;
  absl::Duration wait_slice = absl::Seconds(1);      // how long one wait for a batch may block
  absl::Duration stall_warning = absl::Seconds(10);  // a wait this long is reported with its reason
  double trace_ratio = 0;                            // share of samples with lifecycle logging
};

// One finished step, as seen by the loop.
struct FinishedStep {
  int64_t step = 0;
  PolicyVersion policy;  // made by the step
  TrainStepResult result;
  const std::vector<TrainGroup>* groups = nullptr;  // valid during the call
  double wait_seconds = 0;                          // for samples
  double train_seconds = 0;
  double checkpoint_seconds = 0;  // how long checkpoints blocked the loop
  // The step was committed by a former process and is repeated from its journal. It publishes
  // nothing, but is reported because the former process may have died before its report.
  bool redo = false;
};

// Callbacks of the loop, on the loop's thread unless noted.
class TrainerObserver {
 public:
  virtual ~TrainerObserver() = default;
  // After CommitStep, before the weights are published: makes the ledger rows survive a killed
  // process.
  virtual absl::Status OnCommitted() = 0;
  // The weights are being published; `weights` is the version for evaluations to pin.
  virtual absl::Status OnStep(const FinishedStep& report, const WeightSnapshot& weights) = 0;
  // A wait has lasted at least stall_warning.
  virtual void OnStalled(const std::string& reason, absl::Duration waited) = 0;
  // Result of a checkpoint, which is durable if OK. Called on the thread that writes it.
  virtual void OnCheckpoint(const absl::Status& /*status*/) {}
  // The loop does not wait, or the job is paused. Time to send rows that could not be sent before:
  // once a version becomes durable, its steps are not redone and not reported again.
  virtual void OnRest() {}
};

// The trainer's order of events (docs/architecture.md, "How a weight version travels"): optimizer
// step -> CommitStep -> publish -> checkpoint -> MarkDurable, of which publications and checkpoints
// run beside the next steps, at most one of each at a time. The file of generated samples is
// written after CommitStep, so that it has only committed groups, and before the checkpoint, after
// which the step is not redone. Fault points: optimizer_step, commit, publish, checkpoint_write,
// checkpoint_rename, mark_durable; and redo, after a redone optimizer step. Only one thread may
// call Run().
class TrainerLoop {
 public:
  TrainerLoop(TrajectoryStore& store, Learner& learner, WeightPublisher& publisher,
              TrainerObserver& observer, const Clock& clock, FaultPoints& faults,
              TrainerLoopOptions options);
  ~TrainerLoop();

  // Opens an epoch, tidies the checkpoints (TidyCheckpoints) and generated files, redoes the steps
  // that were committed after the loaded version, and publishes the last one, so that engines can
  // start. With `save_loaded`, also writes the loaded version as a checkpoint, so that a resume
  // need not repeat what led to it. If `stop` came first, returns OK with some steps not redone and
  // nothing published; then only the destructor may be called. If redone steps give other weights
  // than the committed ones, this is logged and later versions get the lineage that the store
  // assigns. FAILED_PRECONDITION with epoch() still 0: the store rejects the loaded version, which
  // belongs to another history.
  absl::Status Start(bool save_loaded, std::stop_token stop = {});

  // Writes the scores of evaluations that have ended to their checkpoints. Call it after Run(), for
  // evaluations that end later than the last checkpoint.
  void RecordScores();

  // Trains until the last step or until `stop`, then writes a final checkpoint of what was
  // committed. Returns:
  //   OK: all steps done, or stopped.
  //   FAILED_PRECONDITION: loss or gradient not finite, fenced, or the job paused itself.
  absl::Status Run(std::stop_token stop);

  int64_t committed() const { return policy_.version; }
  // 0 until the store has opened an epoch for the loaded version.
  int64_t epoch() const { return epoch_; }

  // While paused, no batch is claimed; the current step is finished. Thread-safe.
  void SetPaused(bool paused) { paused_.store(paused); }
  // How long the loop has been waiting for a batch; zero while it trains. Thread-safe.
  absl::Duration waiting() const;
  // Requests a checkpoint of the next committed step, in addition to the periodic ones.
  // Thread-safe.
  void RequestCheckpoint() { checkpoint_requested_.store(true); }

 private:
  absl::StatusOr<std::optional<NextBatchReply>> AwaitBatch(int64_t step, std::stop_token stop,
                                                           double& waited_seconds);
  absl::Status Step(int64_t step, const NextBatchReply& batch, double waited_seconds);
  absl::StatusOr<CommitReceipt> Redo(const JournalEntry& entry);
  // Stages the learner's weights as version `policy`; returns their content hash.
  absl::StatusOr<std::string> Stage(PolicyVersion policy);
  // Trains on the report's groups and adds result and time to it.
  absl::Status Train(FinishedStep& report);
  void Committed(const CommitReceipt& receipt);
  absl::Status WriteGenerated(int64_t step, const std::vector<TrainGroup>& groups);
  void TraceTrained(int64_t step, const std::vector<TrainGroup>& groups) const;
  // `state`: of options_.state_file at the committed version; none: as it is now.
  absl::Status Checkpoint(std::optional<StateFile> state = {});
  // Waits for the end of the checkpoint being written, and reports a long wait.
  absl::Status JoinCheckpoint();
  absl::Status WriteCheckpointAndMark(CheckpointContents contents);
  // `policy` is durable: takes the scores, hands it to the hook and deletes what is not kept.
  absl::Status AfterCheckpoint(PolicyVersion policy, int64_t writer_epoch);
  void OfferToHook(PolicyVersion policy);

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
  bool uncommitted_ = false;       // the learner holds an uncommitted step
  bool unwritten_ = false;         // the last committed step has no file of generated samples
  int64_t checkpointed_ = -1;      // version of the last checkpoint started
  double checkpoint_seconds_ = 0;  // since the last report
  std::atomic<bool> paused_{false};
  std::atomic<bool> checkpoint_requested_{false};
  std::atomic<int64_t> waiting_since_{0};  // ns since the epoch; 0 while it trains

  Mutex mu_;
  absl::Status checkpoint_status_ ABSL_GUARDED_BY(mu_);
  std::vector<CheckpointScore> scores_;             // that no checkpoint has yet
  std::shared_ptr<Notification> checkpoint_ended_;  // of the last checkpoint; null before the first
  std::jthread checkpoint_thread_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_LOOP_TRAINER_LOOP_H_
