#ifndef FRESHET_TESTS_TESTING_FAKE_TRAJECTORY_STORE_H_
#define FRESHET_TESTS_TESTING_FAKE_TRAJECTORY_STORE_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/str_cat.h"
#include "datastore/memory/in_memory_call_budget.h"
#include "datastore/memory/in_memory_evaluation_store.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Implements what prompt feeders and reward workers use: a bounded prompt queue with a high-water
// mark, rows to score with leases, fencing tokens and retries, and change counts. All other
// operations return UNIMPLEMENTED. Thread-safe.
class FakeTrajectoryStore final : public TrajectoryStore {
 public:
  explicit FakeTrajectoryStore(StoreOptions options) : options_(std::move(options)) {}

  // Adds a row to be scored.
  void AddRow(const SampleKey& key, std::map<std::string, std::string> attributes,
              Response response) ABSL_LOCKS_EXCLUDED(mu_) {
    Prompt prompt;
    prompt.ordinal = key.ordinal;
    prompt.attributes = std::move(attributes);
    MutexLock lock(mu_);
    Row row;
    row.view.key = key;
    row.view.uid = StrCat(options_.job, "/", key.ordinal, "/", key.attempt, "/", key.index);
    row.view.prompt = std::make_shared<const Prompt>(std::move(prompt));
    row.view.response = std::make_shared<const Response>(std::move(response));
    rows_.push_back(std::move(row));
    Change(Topic::kRows);
  }

  // Expires all row leases, as Sweep does.
  void ExpireRowLeases() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    for (Row& row : rows_) row.token = 0;
    Change(Topic::kRows);
  }

  // Makes the next `count` calls of PutRows return `status` without effect.
  void FailPuts(int count, absl::Status status) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    failing_puts_ = count;
    put_failure_ = std::move(status);
  }

  // Makes the next `count` calls of LeaseRows and PutPrompts return `status`.
  void FailCalls(int count, absl::Status status) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    failing_calls_ = count;
    failure_ = std::move(status);
  }

  // Removes up to `count` prompts from the queue, as a rollout worker does.
  std::vector<Prompt> TakePrompts(size_t count) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    std::vector<Prompt> taken;
    while (taken.size() < count && !queue_.empty()) {
      taken.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    if (!taken.empty()) Change(Topic::kPrompts);
    return taken;
  }

  size_t queued() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return queue_.size();
  }

  // Score of the `i`-th added row; null if it has none.
  std::shared_ptr<const Score> score(size_t i) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return rows_.at(i).view.score;
  }
  // Reasons passed to FailRow for the `i`-th added row.
  std::vector<std::string> failures(size_t i) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return rows_.at(i).failures;
  }
  size_t scored_rows() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return static_cast<size_t>(std::count_if(
        rows_.begin(), rows_.end(), [](const Row& row) { return row.view.score != nullptr; }));
  }

  size_t leased_rows() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return static_cast<size_t>(
        std::count_if(rows_.begin(), rows_.end(), [](const Row& row) { return row.token != 0; }));
  }

  int put_rows_calls() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return put_rows_calls_;
  }
  int lease_rows_calls() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return lease_rows_calls_;
  }

  const StoreOptions& options() const override { return options_; }
  EvaluationStore& evaluations() override { return evaluations_; }
  CallBudget& calls() override { return calls_; }

  absl::StatusOr<PutPromptsReply> PutPrompts(const std::vector<Prompt>& prompts) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (failing_calls_ > 0) {
      --failing_calls_;
      return failure_;
    }
    PutPromptsReply reply;
    for (const Prompt& prompt : prompts) {
      if (prompt.ordinal > high_water_) {
        if (static_cast<int64_t>(queue_.size()) >= options_.max_queued_prompts) break;
        queue_.push_back(prompt);
        high_water_ = prompt.ordinal;
      }
      ++reply.accepted;
    }
    reply.high_water = high_water_;
    reply.full = static_cast<int64_t>(queue_.size()) >= options_.max_queued_prompts;
    return reply;
  }

  absl::StatusOr<std::vector<RowLease>> LeaseRowsFor(const RowRequest& request) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    ++lease_rows_calls_;
    if (failing_calls_ > 0) {
      --failing_calls_;
      return failure_;
    }
    std::vector<RowLease> leases;
    for (Row& row : rows_) {
      if (static_cast<int64_t>(leases.size()) >= request.max_rows) break;
      const bool dead = static_cast<int32_t>(row.failures.size()) >= options_.max_row_failures;
      if (row.token != 0 || row.view.score != nullptr || dead) continue;
      row.token = ++last_token_;
      leases.push_back({row.token, absl::InfiniteFuture(), row.view});
    }
    return leases;
  }

  absl::StatusOr<std::vector<absl::Status>> PutRows(Task, const std::vector<RowPut>& rows) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    ++put_rows_calls_;
    if (failing_puts_ > 0) {
      --failing_puts_;
      Change(Topic::kBatch);
      return put_failure_;
    }
    std::vector<absl::Status> statuses;
    for (const RowPut& put : rows) {
      Row* row = Leased(put.token);
      statuses.push_back(row == nullptr ? FailedPrecondition("no live lease ", put.token)
                                        : absl::OkStatus());
      if (row == nullptr) continue;
      row->view.score = put.values.score;
      row->token = 0;
    }
    Change(Topic::kBatch);
    return statuses;
  }

  absl::Status EndRow(Task, int64_t token, RowEnd end, const std::string& reason) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    Row* row = Leased(token);
    if (row == nullptr) return FailedPrecondition("no live lease ", token);
    if (end == RowEnd::kFailed) row->failures.push_back(reason);
    row->token = 0;
    Change(Topic::kRows);
    return absl::OkStatus();
  }

  uint64_t ChangeCount(Topic topic) override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return changes_[static_cast<size_t>(topic)];
  }
  uint64_t AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) override
      ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time deadline = absl::Now() + timeout;
    MutexLock lock(mu_);
    const uint64_t& count = changes_[static_cast<size_t>(topic)];
    while (count <= seen && !closed_) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) break;
      cv_.WaitFor(mu_, left);
    }
    return count;
  }
  void Close() override ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    closed_ = true;
    cv_.NotifyAll();
  }

  absl::StatusOr<LeaseReply> LeasePrompts(const LeaseRequest&) override { return None(); }
  absl::StatusOr<std::vector<int64_t>> RenewLeases(const std::string&,
                                                   const std::vector<int64_t>&) override {
    return None();
  }
  absl::Status ReturnLease(int64_t, const std::vector<int32_t>&,
                           const std::vector<Response>&) override {
    return None();
  }
  absl::Status FailLease(int64_t, const std::string&) override { return None(); }
  absl::Status HandBackLease(int64_t, const std::string&) override { return None(); }
  absl::StatusOr<std::vector<absl::Status>> PutSamples(const std::vector<SamplePut>&) override {
    return None();
  }
  absl::Status CountGeneration(const GenerationTotals&) override { return None(); }
  absl::StatusOr<int64_t> RevokeWorker(const std::string&) override { return None(); }
  absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest&) override { return None(); }
  absl::StatusOr<NextBatchReply> NextBatch(int64_t, int64_t) override { return None(); }
  absl::StatusOr<std::vector<SampleView>> ReadSamples(const std::vector<SampleKey>&) override {
    return None();
  }
  absl::StatusOr<CommitReceipt> CommitStep(int64_t, int64_t, const std::vector<int64_t>&,
                                           const std::string&) override {
    return None();
  }
  absl::Status MarkDurable(int64_t, int64_t, const std::string&) override { return None(); }
  absl::Status RecordResume(int64_t, int64_t, int64_t, const std::string&) override {
    return None();
  }
  absl::StatusOr<int64_t> Sweep() override { return None(); }
  absl::StatusOr<StoreStats> Stats() override { return None(); }
  absl::StatusOr<Explanation> Explain() override { return None(); }
  absl::StatusOr<PromptCursor> Cursor() override { return None(); }
  absl::StatusOr<std::vector<LedgerRow>> ReadLedger(int64_t, int64_t) override { return None(); }
  absl::Status TrimLedger(int64_t) override { return None(); }
  absl::StatusOr<std::vector<DeadLetter>> DeadLetters(int64_t) override { return None(); }

 private:
  struct Row {
    SampleView view;
    int64_t token = 0;  // of the live lease; 0: not leased
    std::vector<std::string> failures;
  };

  static absl::Status None() { return absl::UnimplementedError("not part of the fake store"); }

  void Change(Topic topic) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    ++changes_[static_cast<size_t>(topic)];
    cv_.NotifyAll();
  }
  Row* Leased(int64_t token) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (Row& row : rows_) {
      if (token != 0 && row.token == token) return &row;
    }
    return nullptr;
  }

  InMemoryEvaluationStore evaluations_{absl::Seconds(30), 3, SystemClock::Get()};
  InMemoryCallBudget calls_;
  const StoreOptions options_;
  Mutex mu_;
  CondVar cv_;
  std::deque<Prompt> queue_ ABSL_GUARDED_BY(mu_);
  int64_t high_water_ ABSL_GUARDED_BY(mu_) = -1;
  std::vector<Row> rows_ ABSL_GUARDED_BY(mu_);
  int64_t last_token_ ABSL_GUARDED_BY(mu_) = 0;
  int put_rows_calls_ ABSL_GUARDED_BY(mu_) = 0;
  int lease_rows_calls_ ABSL_GUARDED_BY(mu_) = 0;
  int failing_puts_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status put_failure_ ABSL_GUARDED_BY(mu_);
  int failing_calls_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  uint64_t changes_[kNumTopics] ABSL_GUARDED_BY(mu_) = {};
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_FAKE_TRAJECTORY_STORE_H_
