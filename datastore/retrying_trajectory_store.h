#ifndef FRESHET_DATASTORE_RETRYING_TRAJECTORY_STORE_H_
#define FRESHET_DATASTORE_RETRYING_TRAJECTORY_STORE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "datastore/trajectory_store.h"

namespace freshet {

struct RetryOptions {
  absl::Duration first_backoff = absl::Milliseconds(50);
  absl::Duration max_backoff = absl::Seconds(2);
  // Longer outages are returned to the caller as UNAVAILABLE.
  absl::Duration outage_limit = absl::Minutes(10);
  // Called once per outage, with the error, at the first failed retry.
  std::function<void(const absl::Status&)> on_outage;
};

// Hides store outages: retries operations that return UNAVAILABLE, or PERMISSION_DENIED (a password
// change in progress), with bounded exponential backoff. Most operations are idempotent; for the
// others a lost reply costs one lease, which expires. Only CountGeneration is not retried, because
// it could count twice. Thread-safe. The store and the clock must outlive this object.
class RetryingTrajectoryStore final : public TrajectoryStore {
 public:
  RetryingTrajectoryStore(TrajectoryStore& store, const Clock& clock, RetryOptions options)
      : store_(store), clock_(clock), options_(std::move(options)) {}

  const StoreOptions& options() const override { return store_.options(); }
  // Without retries.
  EvaluationStore& evaluations() override { return store_.evaluations(); }
  // Without retries: Spend may count twice.
  CallBudget& calls() override { return store_.calls(); }
  absl::StatusOr<PutPromptsReply> PutPrompts(const std::vector<Prompt>& prompts) override {
    return Retry(&TrajectoryStore::PutPrompts, prompts);
  }
  absl::StatusOr<LeaseReply> LeasePrompts(const LeaseRequest& request) override {
    return Retry(&TrajectoryStore::LeasePrompts, request);
  }
  absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string& worker,
                                                   const std::vector<int64_t>& tokens) override {
    return Retry(&TrajectoryStore::RenewLeases, worker, tokens);
  }
  absl::Status ReturnLease(int64_t token, const std::vector<int32_t>& indices,
                           const std::vector<Response>& partials) override {
    return Retry(&TrajectoryStore::ReturnLease, token, indices, partials);
  }
  absl::Status FailLease(int64_t token, const std::string& reason) override {
    return Retry(&TrajectoryStore::FailLease, token, reason);
  }
  absl::Status HandBackLease(int64_t token, const std::string& reason) override {
    return Retry(&TrajectoryStore::HandBackLease, token, reason);
  }
  absl::StatusOr<std::vector<absl::Status>> PutSamples(
      const std::vector<SamplePut>& samples) override {
    return Retry(&TrajectoryStore::PutSamples, samples);
  }
  absl::Status CountGeneration(const GenerationTotals& added) override {
    return store_.CountGeneration(added);
  }
  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override {
    return Retry(&TrajectoryStore::LeaseRowsFor, request);
  }
  absl::StatusOr<std::vector<absl::Status>> PutRows(Task task,
                                                    const std::vector<RowPut>& rows) override {
    return Retry(&TrajectoryStore::PutRows, task, rows);
  }
  absl::Status EndRow(Task task, int64_t token, RowEnd end, const std::string& reason) override {
    return Retry(&TrajectoryStore::EndRow, task, token, end, reason);
  }
  absl::StatusOr<int64_t> RevokeWorker(const std::string& worker) override {
    return Retry(&TrajectoryStore::RevokeWorker, worker);
  }
  absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest& request) override {
    return Retry(&TrajectoryStore::OpenEpochFor, request);
  }
  absl::StatusOr<NextBatchReply> NextBatch(int64_t epoch, int64_t step) override {
    return Retry(&TrajectoryStore::NextBatch, epoch, step);
  }
  absl::StatusOr<std::vector<SampleView>> ReadSamples(const std::vector<SampleKey>& keys) override {
    return Retry(&TrajectoryStore::ReadSamples, keys);
  }
  absl::StatusOr<CommitReceipt> CommitStep(int64_t epoch, int64_t step,
                                           const std::vector<int64_t>& ordinals,
                                           const std::string& content_hash) override {
    return Retry(&TrajectoryStore::CommitStep, epoch, step, ordinals, content_hash);
  }
  absl::Status MarkDurable(int64_t epoch, int64_t version,
                           const std::string& checkpoint_sha256) override {
    return Retry(&TrajectoryStore::MarkDurable, epoch, version, checkpoint_sha256);
  }
  absl::Status RecordResume(int64_t epoch_hint, int64_t parent_lineage, int64_t fork_version,
                            const std::string& checkpoint_sha256) override {
    return Retry(&TrajectoryStore::RecordResume, epoch_hint, parent_lineage, fork_version,
                 checkpoint_sha256);
  }
  absl::StatusOr<int64_t> Sweep() override { return Retry(&TrajectoryStore::Sweep); }
  absl::StatusOr<StoreStats> Stats() override { return Retry(&TrajectoryStore::Stats); }
  absl::StatusOr<Explanation> Explain() override { return Retry(&TrajectoryStore::Explain); }
  absl::StatusOr<PromptCursor> Cursor() override { return Retry(&TrajectoryStore::Cursor); }
  absl::StatusOr<std::vector<LedgerRow>> ReadLedger(int64_t after_seq, int64_t max_rows) override {
    return Retry(&TrajectoryStore::ReadLedger, after_seq, max_rows);
  }
  absl::Status TrimLedger(int64_t upto_seq) override {
    return Retry(&TrajectoryStore::TrimLedger, upto_seq);
  }
  absl::StatusOr<std::vector<DeadLetter>> DeadLetters(int64_t max_letters) override {
    return Retry(&TrajectoryStore::DeadLetters, max_letters);
  }
  uint64_t ChangeCount(Topic topic) override { return store_.ChangeCount(topic); }
  uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) override {
    return store_.AwaitChange(topic, seen, timeout);
  }
  // Also ends waits for the end of an outage.
  void Close() override;

  int64_t retries() const { return retries_.load(); }

 private:
  // Tries of one operation.
  struct Tries {
    absl::Time start;
    int64_t failed = 0;
  };

  template <typename Operation, typename... Args>
  auto Retry(Operation operation, const Args&... args)
      -> std::invoke_result_t<Operation, TrajectoryStore&, const Args&...> {
    Tries tries{clock_.Now()};
    while (true) {
      auto result = (store_.*operation)(args...);
      if (!AwaitRetry(ErrorOf(result), tries)) return result;
    }
  }
  static const absl::Status& ErrorOf(const absl::Status& status) { return status; }
  template <typename T>
  static const absl::Status& ErrorOf(const absl::StatusOr<T>& result) {
    return result.status();
  }
  // Waits until the next try. False if the caller gets this status.
  bool AwaitRetry(const absl::Status& status, Tries& tries) ABSL_LOCKS_EXCLUDED(mu_);

  TrajectoryStore& store_;
  const Clock& clock_;
  const RetryOptions options_;
  std::atomic<int64_t> retries_{0};
  Mutex mu_;
  CondVar closed_changed_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

// Calls `open` again after the same errors, with the same limits. CANCELLED: `stop`.
absl::StatusOr<std::unique_ptr<TrajectoryStore>> OpenWithRetries(
    const std::function<absl::StatusOr<std::unique_ptr<TrajectoryStore>>()>& open,
    const Clock& clock, const RetryOptions& options, const std::stop_token& stop);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_RETRYING_TRAJECTORY_STORE_H_
