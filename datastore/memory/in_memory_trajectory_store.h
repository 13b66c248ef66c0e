#ifndef FRESHET_DATASTORE_MEMORY_IN_MEMORY_TRAJECTORY_STORE_H_
#define FRESHET_DATASTORE_MEMORY_IN_MEMORY_TRAJECTORY_STORE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "datastore/change_counts.h"
#include "datastore/memory/in_memory_call_budget.h"
#include "datastore/memory/in_memory_evaluation_store.h"
#include "datastore/memory/job_state.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Store of a job whose roles share one process. Nothing survives the process: the job then resumes
// from a checkpoint as a fork, with a new store that starts at `StoreOrigin` and gets what curation
// knew by then. One lock guards the
// state and is not held during I/O. Leases expire by `clock`, lazily in every operation and in
// Sweep().
// Costs: O(log n) per operation, except NextBatch, CommitStep and leases of requeued groups, which
// are O(n log n) in the outstanding groups.
// Thread-safe.
class InMemoryTrajectoryStore final : public TrajectoryStore {
 public:
  // `clock` must outlive the store. INVALID_ARGUMENT: invalid options, or an origin with negative
  // numbers.
  static absl::StatusOr<std::unique_ptr<InMemoryTrajectoryStore>> Create(StoreOptions options,
                                                                         StoreOrigin origin,
                                                                         const Clock& clock);

  // What curation knows now: also of groups that are scored and not trained yet, which a job that
  // resumes from here generates again and counts once more. Has the newest successes whose tokens
  // and log-probs take at most `max_success_bytes`.
  CurationState Curation(int64_t max_success_bytes = std::numeric_limits<int64_t>::max());
  // Takes over the Curation() saved with the origin's checkpoint. Call it before any other
  // operation. Successes keep their age. Leaves out what the options no longer admit: successes
  // beyond max_age, beyond `capacity` (the oldest) or below min_reward, and the histories if their
  // min_reward is another one. INVALID_ARGUMENT, without effect: a success that no worker could
  // have put, for example one of a newer version, or an impossible history. Responses and scores
  // must not be null.
  absl::Status RestoreCuration(CurationState state);

  const StoreOptions& options() const override { return options_; }
  EvaluationStore& evaluations() override { return evaluations_; }
  CallBudget& calls() override { return calls_; }
  absl::StatusOr<PutPromptsReply> PutPrompts(const std::vector<Prompt>& prompts) override {
    return Apply(&JobState::PutPrompts, prompts);
  }
  absl::StatusOr<LeaseReply> LeasePrompts(const LeaseRequest& request) override {
    return Apply(&JobState::LeasePrompts, request);
  }
  absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string& worker,
                                                   const std::vector<int64_t>& tokens) override {
    return Apply(&JobState::RenewLeases, worker, tokens);
  }
  absl::Status ReturnLease(int64_t token, const std::vector<int32_t>& indices,
                           const std::vector<Response>& partials) override {
    return Apply(&JobState::ReturnLease, token, indices, partials);
  }
  absl::Status FailLease(int64_t token, const std::string& reason) override {
    return Apply(&JobState::GiveUpLease, token, LeaseEnd::kFailed, reason);
  }
  absl::Status HandBackLease(int64_t token, const std::string& reason) override {
    return Apply(&JobState::GiveUpLease, token, LeaseEnd::kHandedBack, reason);
  }
  absl::StatusOr<std::vector<absl::Status>> PutSamples(
      const std::vector<SamplePut>& samples) override;
  absl::Status CountGeneration(const GenerationTotals& added) override;
  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override {
    return Apply(&JobState::LeaseRows, request);
  }
  absl::StatusOr<std::vector<absl::Status>> PutRows(Task task,
                                                    const std::vector<RowPut>& rows) override;
  absl::Status EndRow(Task, int64_t token, RowEnd end, const std::string& reason) override {
    return Apply(&JobState::EndRow, token, end, reason);
  }
  absl::StatusOr<int64_t> RevokeWorker(const std::string& worker) override {
    return Apply(&JobState::RevokeWorker, worker);
  }
  absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest& request) override {
    return Apply(&JobState::OpenEpoch, request);
  }
  absl::StatusOr<NextBatchReply> NextBatch(int64_t epoch, int64_t step) override {
    return Apply(&JobState::NextBatch, epoch, step);
  }
  absl::StatusOr<std::vector<SampleView>> ReadSamples(const std::vector<SampleKey>& keys) override {
    return Apply(&JobState::ReadSamples, keys);
  }
  absl::StatusOr<CommitReceipt> CommitStep(int64_t epoch, int64_t step,
                                           const std::vector<int64_t>& ordinals,
                                           const std::string& content_hash) override {
    return Apply(&JobState::CommitStep, epoch, step, ordinals, content_hash);
  }
  absl::Status MarkDurable(int64_t epoch, int64_t version,
                           const std::string& checkpoint_sha256) override {
    return Apply(&JobState::MarkDurable, epoch, version, checkpoint_sha256);
  }
  absl::Status RecordResume(int64_t epoch_hint, int64_t parent_lineage, int64_t fork_version,
                            const std::string& checkpoint_sha256) override;
  absl::StatusOr<int64_t> Sweep() override { return Apply(&JobState::Sweep); }
  absl::StatusOr<StoreStats> Stats() override;
  absl::StatusOr<Explanation> Explain() override { return Apply(&JobState::Explain); }
  absl::StatusOr<PromptCursor> Cursor() override;
  absl::StatusOr<std::vector<LedgerRow>> ReadLedger(int64_t after_seq, int64_t max_rows) override;
  absl::Status TrimLedger(int64_t upto_seq) override;
  absl::StatusOr<std::vector<DeadLetter>> DeadLetters(int64_t max_letters) override;
  uint64_t ChangeCount(Topic topic) override { return changes_.Count(topic); }
  uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) override {
    return changes_.Await(topic, seen, timeout);
  }
  void Close() override;

 private:
  InMemoryTrajectoryStore(StoreOptions options, StoreOrigin origin, const Clock& clock);

  // Calls `operation` with `args` and the time, and announces what it changed.
  template <typename Result, typename... Parameters, typename... Args>
  Result Apply(Result (JobState::*operation)(Parameters...), const Args&... args)
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    Result result = (state_.*operation)(args..., clock_.Now());
    Announce();
    return result;
  }
  // Increments the change counts of topics changed by the last operation.
  void Announce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const StoreOptions options_;
  const Clock& clock_;
  mutable Mutex mu_;
  JobState state_ ABSL_GUARDED_BY(mu_);
  ChangeCounts changes_;
  InMemoryEvaluationStore evaluations_;
  InMemoryCallBudget calls_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_MEMORY_IN_MEMORY_TRAJECTORY_STORE_H_
