#include "trainer/loop/trainer_loop.h"

#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/trace.h"

namespace freshet {
namespace {

std::vector<int64_t> Ordinals(const std::vector<TrainGroup>& groups) {
  std::vector<int64_t> ordinals;
  ordinals.reserve(groups.size());
  for (const TrainGroup& group : groups) ordinals.push_back(group.ordinal);
  return ordinals;
}

}  // namespace

TrainerLoop::TrainerLoop(TrajectoryStore& store, Learner& learner, WeightPublisher& publisher,
                         TrainerObserver& observer, const Clock& clock, FaultPoints& faults,
                         TrainerLoopOptions options)
    : store_(store),
      learner_(learner),
      publisher_(publisher),
      observer_(observer),
      clock_(clock),
      faults_(faults),
      options_(std::move(options)),
      policy_(options_.loaded) {}

TrainerLoop::~TrainerLoop() = default;

absl::Status TrainerLoop::Start(bool save_loaded, std::stop_token stop) {
  const std::stop_callback on_stop(stop, [this] { learner_.Stop(); });
  const int64_t seen = HighestWriterEpoch(options_.checkpoint_root);
  FRESHET_ASSIGN_OR_RETURN(const OpenEpochReply opened,
                           store_.OpenEpochFor({options_.trainer, options_.loaded,
                                                options_.loaded_digest, options_.request_id}));
  epoch_ = opened.epoch;
  digest_ = opened.digest;
  writer_epoch_ = WriterEpoch(epoch_, seen);
  FRESHET_RETURN_IF_ERROR(TidyCheckpoints(options_.checkpoint_root, writer_epoch_,
                                          options_.passed_over, options_.damaged));
  if (options_.generated != nullptr) {
    FRESHET_RETURN_IF_ERROR(options_.generated->RemoveAfter(policy_.version));
  }
  FRESHET_RETURN_IF_ERROR(observer_.OnCommitted());
  FRESHET_ASSIGN_OR_RETURN(const std::string loaded_hash, Stage(policy_));
  // The loaded version was committed earlier; its receipt is rebuilt from the store's reply.
  CommitReceipt receipt{policy_, epoch_, policy_.version, loaded_hash, digest_};
  if (save_loaded) FRESHET_RETURN_IF_ERROR(Checkpoint());
  if (!save_loaded) {
    checkpointed_ = policy_.version;
    if (options_.hook != nullptr) OfferToHook(policy_);  // a former process may have died before it
  }
  for (const JournalEntry& entry : opened.redo) {
    if (stop.stop_requested()) return absl::OkStatus();
    FRESHET_ASSIGN_OR_RETURN(receipt, Redo(entry));
  }
  return publisher_.Publish(receipt);
}

// Repeats a step that a former process committed. The batch comes from the store's journal, so on
// the same hardware the weights are bitwise identical. If they differ, the store increases the
// lineage, and the receipt carries the version to publish.
absl::StatusOr<CommitReceipt> TrainerLoop::Redo(const JournalEntry& entry) {
  FRESHET_ASSIGN_OR_RETURN(const NextBatchReply batch, store_.NextBatch(epoch_, entry.step));
  if (!batch.ready) {
    return Internal("the batch of committed step ", entry.step, " is not there: ", batch.reason);
  }
  FinishedStep report;
  report.step = entry.step;
  report.groups = &batch.groups;
  report.redo = true;
  FRESHET_RETURN_IF_ERROR(Train(report));
  faults_.Reach("redo");
  const PolicyVersion next{policy_.lineage, entry.step};
  FRESHET_ASSIGN_OR_RETURN(const std::string content_hash, Stage(next));
  FRESHET_ASSIGN_OR_RETURN(
      const CommitReceipt receipt,
      store_.CommitStep(epoch_, entry.step, Ordinals(batch.groups), content_hash));
  if (content_hash != entry.content_hash) {
    FRESHET_LOG(Warning) << "event=redo_gave_other_weights step=" << entry.step
                         << " content_hash=" << content_hash << " committed=" << entry.content_hash
                         << " lineage=" << receipt.policy.lineage
                         << " loaded=" << options_.loaded.version;
  }
  if (receipt.policy != next) FRESHET_RETURN_IF_ERROR(Stage(receipt.policy).status());
  Committed(receipt);
  FRESHET_RETURN_IF_ERROR(WriteGenerated(entry.step, batch.groups));
  report.policy = policy_;
  FRESHET_RETURN_IF_ERROR(observer_.OnStep(report, publisher_.staged()));
  return receipt;
}

absl::StatusOr<std::string> TrainerLoop::Stage(PolicyVersion policy) {
  FRESHET_ASSIGN_OR_RETURN(const std::string_view arena, learner_.Arena());
  FRESHET_RETURN_IF_ERROR(publisher_.Stage(policy, epoch_, arena, learner_.Shards()));
  return publisher_.staged().manifest.content_hash;
}

absl::Status TrainerLoop::Train(FinishedStep& report) {
  const absl::Time start = clock_.Now();
  absl::StatusOr<TrainStepResult> trained = learner_.TrainStep(report.step, *report.groups);
  // These leave the weights unchanged.
  uncommitted_ = trained.ok() || !(absl::IsFailedPrecondition(trained.status()) ||
                                   absl::IsCancelled(trained.status()));
  if (!trained.ok()) return trained.status();
  report.result = *std::move(trained);
  report.train_seconds =
      absl::ToDoubleSeconds(clock_.Now() - start) - report.result.checkpoint_seconds;
  return absl::OkStatus();
}

void TrainerLoop::Committed(const CommitReceipt& receipt) {
  policy_ = receipt.policy;
  digest_ = receipt.digest;
  uncommitted_ = false;
}

absl::Status TrainerLoop::WriteGenerated(int64_t step, const std::vector<TrainGroup>& groups) {
  if (options_.generated == nullptr) return absl::OkStatus();
  const absl::Status written = options_.generated->Write(step, groups);
  unwritten_ = !written.ok();
  return written;
}

void TrainerLoop::TraceTrained(int64_t step, const std::vector<TrainGroup>& groups) const {
  if (options_.trace_ratio <= 0) return;
  for (const TrainGroup& group : groups) {
    for (const TrainSample& sample : group.samples) {
      const std::string& uid = sample.sample.uid;
      if (!IsTraced(uid, options_.trace_ratio)) continue;
      FRESHET_LOG(Info) << "event=sample_trained " << TraceWords(uid) << " step=" << step
                        << " min_version=" << sample.min_version;
    }
  }
}

absl::Status TrainerLoop::Run(std::stop_token stop) {
  const std::stop_callback on_stop(stop, [this] { learner_.Stop(); });
  absl::Status status;
  while (status.ok() && policy_.version < options_.steps && !stop.stop_requested()) {
    const int64_t step = policy_.version + 1;
    double waited_seconds = 0;
    absl::StatusOr<std::optional<NextBatchReply>> batch = AwaitBatch(step, stop, waited_seconds);
    if (!batch.ok()) {
      status = batch.status();
    } else if (batch->has_value()) {
      status = Step(step, **batch, waited_seconds);
    }
  }
  // Save what was committed, whatever ended the loop. With an uncommitted step the weights are
  // ahead of their version, so they are not saved. A step whose samples are not in their file is
  // left to be redone.
  if (policy_.version != checkpointed_ && !uncommitted_ && !unwritten_) {
    const absl::Status saved = Checkpoint();
    if (status.ok()) status = saved;
  }
  const absl::Status joined = JoinCheckpoint();
  publisher_.AwaitPublished();
  // A step that waited for ranks.
  if (stop.stop_requested() && (absl::IsCancelled(status) || absl::IsAborted(status))) {
    return joined;
  }
  return status.ok() ? joined : status;
}

absl::StatusOr<std::optional<NextBatchReply>> TrainerLoop::AwaitBatch(int64_t step,
                                                                      std::stop_token stop,
                                                                      double& waited_seconds) {
  const absl::Time start = clock_.Now();
  absl::Time next_warning = start + options_.stall_warning;
  bool stalled = false;
  waiting_since_ = absl::ToUnixNanos(start);
  const absl::Cleanup waited = [this] { waiting_since_ = 0; };
  const std::stop_callback wake(stop, [this] { store_.Close(); });
  while (!stop.stop_requested()) {
    const uint64_t seen = store_.ChangeCount(Topic::kBatch);
    if (paused_.load()) {
      observer_.OnRest();
      store_.AwaitChange(Topic::kBatch, seen, options_.wait_slice);
      continue;
    }
    FRESHET_ASSIGN_OR_RETURN(NextBatchReply reply, store_.NextBatch(epoch_, step));
    const absl::Time now = clock_.Now();
    waited_seconds = absl::ToDoubleSeconds(now - start);
    if (reply.ready) {
      if (stalled) observer_.OnRest();
      return std::optional<NextBatchReply>(std::move(reply));
    }
    if (reply.paused) {
      const absl::StatusOr<StoreStats> stats = store_.Stats();
      return FailedPrecondition("the job paused itself: ", reply.reason,
                                stats.ok() ? FilteredCounts(stats->ended_by_reason) : "");
    }
    if (reply.store_full && policy_.version != checkpointed_) {
      // Trained rows are kept until a checkpoint holds them, so write one to make room. Once per
      // version suffices: whatever fills the store after that is still being generated or scored.
      FRESHET_RETURN_IF_ERROR(Checkpoint());
      FRESHET_RETURN_IF_ERROR(JoinCheckpoint());
      continue;
    }
    if (now >= next_warning) {
      FRESHET_ASSIGN_OR_RETURN(const Explanation explanation, store_.Explain());
      observer_.OnStalled(explanation.text, now - start);
      stalled = true;
      next_warning = now + options_.stall_warning;
    }
    store_.AwaitChange(Topic::kBatch, seen, options_.wait_slice);
  }
  return std::optional<NextBatchReply>();
}

absl::Duration TrainerLoop::waiting() const {
  const int64_t since = waiting_since_.load();
  return since == 0 ? absl::ZeroDuration() : clock_.Now() - absl::FromUnixNanos(since);
}

absl::Status TrainerLoop::Step(int64_t step, const NextBatchReply& batch, double waited_seconds) {
  FinishedStep report;
  report.step = step;
  report.groups = &batch.groups;
  report.wait_seconds = waited_seconds;
  FRESHET_RETURN_IF_ERROR(Train(report));
  faults_.Reach("optimizer_step");

  const PolicyVersion next{policy_.lineage, step};
  FRESHET_ASSIGN_OR_RETURN(const std::string content_hash, Stage(next));
  FRESHET_ASSIGN_OR_RETURN(const CommitReceipt receipt,
                           store_.CommitStep(epoch_, step, Ordinals(batch.groups), content_hash));
  Committed(receipt);
  bool due = (options_.checkpoint_every > 0 && step % options_.checkpoint_every == 0) ||
             checkpoint_requested_.exchange(false);
  // Before the weights are published, so that it has no outcome of this version.
  std::optional<StateFile> state;
  if (due && options_.state_file) state = options_.state_file();
  FRESHET_RETURN_IF_ERROR(WriteGenerated(step, batch.groups));
  TraceTrained(step, batch.groups);
  FRESHET_RETURN_IF_ERROR(observer_.OnCommitted());
  faults_.Reach("commit");

  if (step % options_.publish_every == 0 || step == options_.steps) {
    FRESHET_RETURN_IF_ERROR(
        publisher_.Publish(receipt, [&faults = faults_] { faults.Reach("publish"); }));
  }
  report.policy = policy_;
  report.checkpoint_seconds =
      std::exchange(checkpoint_seconds_, 0) + report.result.checkpoint_seconds;
  // Report before the checkpoint, so that what a resume starts from has been reported.
  FRESHET_RETURN_IF_ERROR(observer_.OnStep(report, publisher_.staged()));
  due = checkpoint_requested_.exchange(false) || due;  // requested since the commit
  return due ? Checkpoint(std::move(state)) : absl::OkStatus();
}

absl::Status TrainerLoop::Checkpoint(std::optional<StateFile> state) {
  const absl::Time start = clock_.Now();
  FRESHET_RETURN_IF_ERROR(JoinCheckpoint());
  auto contents = std::make_shared<CheckpointContents>();
  contents->state.job = options_.job;
  contents->writer_epoch = writer_epoch_;
  contents->state.policy = policy_;
  contents->state.epoch = epoch_;
  contents->state.seed = options_.seed;
  contents->state.digest = digest_;
  FRESHET_ASSIGN_OR_RETURN(contents->state.cursor, store_.Cursor());
  observer_.OnRest();
  FRESHET_ASSIGN_OR_RETURN(contents->learner, learner_.Snapshot());
  contents->files = options_.checkpoint_files;
  if (!state.has_value() && options_.state_file) state = options_.state_file();
  if (state.has_value()) contents->files.push_back(*std::move(state));
  contents->weights_dtype = options_.checkpoint_dtype;
  checkpointed_ = policy_.version;
  checkpoint_ended_ = std::make_shared<Notification>();
  checkpoint_thread_ = std::jthread([this, contents, ended = checkpoint_ended_] {
    const LogScope scope(options_.job);
    if (contents->learner->copy) contents->learner->copy();
    const absl::Status status = WriteCheckpointAndMark(std::move(*contents));
    observer_.OnCheckpoint(status);
    {
      MutexLock lock(mu_);
      checkpoint_status_ = status;
    }
    ended->Notify();
  });
  checkpoint_seconds_ += absl::ToDoubleSeconds(clock_.Now() - start);
  return absl::OkStatus();
}

absl::Status TrainerLoop::WriteCheckpointAndMark(CheckpointContents contents) {
  const int64_t epoch = contents.state.epoch;
  const PolicyVersion policy = contents.state.policy;
  const int64_t writer_epoch = contents.writer_epoch;
  FRESHET_ASSIGN_OR_RETURN(
      const std::string sha256,
      WriteCheckpoint(
          options_.checkpoint_root, std::move(contents), [] { return absl::OkStatus(); }, faults_));
  FRESHET_RETURN_IF_ERROR(store_.MarkDurable(epoch, policy.version, sha256));
  faults_.Reach("mark_durable");
  return AfterCheckpoint(policy, writer_epoch);
}

absl::Status TrainerLoop::AfterCheckpoint(PolicyVersion policy, int64_t writer_epoch) {
  RecordScores();
  CheckpointRetention retention = options_.retention;
  if (options_.hook != nullptr) {
    OfferToHook(policy);
    retention.pinned.merge(options_.hook->InUse());
  }
  return PruneCheckpoints(options_.checkpoint_root, writer_epoch, policy.version, retention);
}

void TrainerLoop::OfferToHook(PolicyVersion policy) {
  options_.hook->Offer(
      {options_.job, policy, CheckpointPath(options_.checkpoint_root, policy.version)});
}

void TrainerLoop::RecordScores() {
  if (!options_.scores) return;
  for (CheckpointScore& score : options_.scores()) scores_.push_back(std::move(score));
  std::erase_if(scores_, [this](const CheckpointScore& score) {
    const absl::Status recorded = RecordScore(options_.checkpoint_root, score);
    if (recorded.ok()) return true;
    if (absl::IsNotFound(recorded)) return score.checkpoint < checkpointed_;
    FRESHET_LOG(Warning) << "event=score_not_written error=" << LogQuoted(Message(recorded));
    return false;
  });
}

absl::Status TrainerLoop::JoinCheckpoint() {
  const absl::Time start = clock_.Now();
  bool stalled = false;
  while (checkpoint_ended_ != nullptr && !checkpoint_ended_->WaitFor(options_.stall_warning)) {
    stalled = true;
    observer_.OnStalled(
        StrCat("the checkpoint of version ", checkpointed_, " is still being written"),
        clock_.Now() - start);
  }
  if (stalled) observer_.OnRest();
  if (checkpoint_thread_.joinable()) checkpoint_thread_.join();
  MutexLock lock(mu_);
  return std::exchange(checkpoint_status_, absl::OkStatus());
}

}  // namespace freshet
