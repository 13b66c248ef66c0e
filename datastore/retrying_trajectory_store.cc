#include "datastore/retrying_trajectory_store.h"

#include <algorithm>
#include <utility>

#include "base/backoff.h"

namespace freshet {
namespace {

const absl::Status& StatusOfResult(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOfResult(const absl::StatusOr<T>& result) {
  return result.status();
}

// PERMISSION_DENIED may be a password change in progress.
bool MayPass(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kPermissionDenied;
}

}  // namespace

template <typename Operation>
auto RetryingTrajectoryStore::Retry(Operation operation) -> decltype(operation()) {
  int64_t tries = 0;
  const absl::Time start = clock_.Now();
  bool reported = false;
  while (true) {
    auto result = operation();
    const absl::Status& status = StatusOfResult(result);
    if (!MayPass(status.code())) return result;
    if (clock_.Now() - start >= options_.outage_limit) return result;
    if (!reported && options_.on_outage) options_.on_outage(status);
    reported = true;
    {
      MutexLock lock(mu_);
      if (closed_) return result;
      closed_changed_.WaitFor(mu_,
                              BackoffDelay(++tries, options_.first_backoff, options_.max_backoff));
      if (closed_) return result;
    }
    retries_.fetch_add(1);
  }
}

void RetryingTrajectoryStore::Close() {
  {
    MutexLock lock(mu_);
    closed_ = true;
    closed_changed_.NotifyAll();
  }
  store_.Close();
}

absl::StatusOr<PutPromptsReply> RetryingTrajectoryStore::PutPrompts(
    const std::vector<Prompt>& prompts) {
  return Retry([&] { return store_.PutPrompts(prompts); });
}
absl::StatusOr<LeaseReply> RetryingTrajectoryStore::LeasePrompts(const LeaseRequest& request) {
  return Retry([&] { return store_.LeasePrompts(request); });
}
absl::StatusOr<std::vector<int64_t>> RetryingTrajectoryStore::RenewLeases(
    const std::string& worker, const std::vector<int64_t>& tokens) {
  return Retry([&] { return store_.RenewLeases(worker, tokens); });
}
absl::Status RetryingTrajectoryStore::ReturnLease(int64_t token,
                                                  const std::vector<int32_t>& indices,
                                                  const std::vector<Response>& partials) {
  return Retry([&] { return store_.ReturnLease(token, indices, partials); });
}
absl::Status RetryingTrajectoryStore::FailLease(int64_t token, const std::string& reason) {
  return Retry([&] { return store_.FailLease(token, reason); });
}
absl::Status RetryingTrajectoryStore::HandBackLease(int64_t token, const std::string& reason) {
  return Retry([&] { return store_.HandBackLease(token, reason); });
}
absl::StatusOr<std::vector<absl::Status>> RetryingTrajectoryStore::PutSamples(
    const std::vector<SamplePut>& samples) {
  return Retry([&] { return store_.PutSamples(samples); });
}
absl::StatusOr<std::vector<RowLease>> RetryingTrajectoryStore::LeaseRowsFor(
    const RowRequest& request) {
  return Retry([&] { return store_.LeaseRowsFor(request); });
}
absl::StatusOr<std::vector<absl::Status>> RetryingTrajectoryStore::PutRows(
    Task task, const std::vector<RowPut>& rows) {
  return Retry([&] { return store_.PutRows(task, rows); });
}
absl::Status RetryingTrajectoryStore::EndRow(Task task, int64_t token, RowEnd end,
                                             const std::string& reason) {
  return Retry([&] { return store_.EndRow(task, token, end, reason); });
}
absl::StatusOr<int64_t> RetryingTrajectoryStore::RevokeWorker(const std::string& worker) {
  return Retry([&] { return store_.RevokeWorker(worker); });
}
absl::StatusOr<OpenEpochReply> RetryingTrajectoryStore::OpenEpochFor(const EpochRequest& request) {
  return Retry([&] { return store_.OpenEpochFor(request); });
}
absl::StatusOr<NextBatchReply> RetryingTrajectoryStore::NextBatch(int64_t epoch, int64_t step) {
  return Retry([&] { return store_.NextBatch(epoch, step); });
}
absl::StatusOr<CommitReceipt> RetryingTrajectoryStore::CommitStep(
    int64_t epoch, int64_t step, const std::vector<int64_t>& ordinals,
    const std::string& content_hash) {
  return Retry([&] { return store_.CommitStep(epoch, step, ordinals, content_hash); });
}
absl::Status RetryingTrajectoryStore::MarkDurable(int64_t epoch, int64_t version,
                                                  const std::string& checkpoint_sha256) {
  return Retry([&] { return store_.MarkDurable(epoch, version, checkpoint_sha256); });
}
absl::Status RetryingTrajectoryStore::RecordResume(int64_t epoch_hint, int64_t parent_lineage,
                                                   int64_t fork_version,
                                                   const std::string& checkpoint_sha256) {
  return Retry([&] {
    return store_.RecordResume(epoch_hint, parent_lineage, fork_version, checkpoint_sha256);
  });
}
absl::StatusOr<int64_t> RetryingTrajectoryStore::Sweep() {
  return Retry([&] { return store_.Sweep(); });
}
absl::StatusOr<StoreStats> RetryingTrajectoryStore::Stats() {
  return Retry([&] { return store_.Stats(); });
}
absl::StatusOr<Explanation> RetryingTrajectoryStore::Explain() {
  return Retry([&] { return store_.Explain(); });
}
absl::StatusOr<PromptCursor> RetryingTrajectoryStore::Cursor() {
  return Retry([&] { return store_.Cursor(); });
}
absl::StatusOr<std::vector<LedgerRow>> RetryingTrajectoryStore::ReadLedger(int64_t after_seq,
                                                                           int64_t max_rows) {
  return Retry([&] { return store_.ReadLedger(after_seq, max_rows); });
}
absl::Status RetryingTrajectoryStore::TrimLedger(int64_t upto_seq) {
  return Retry([&] { return store_.TrimLedger(upto_seq); });
}
absl::StatusOr<std::vector<DeadLetter>> RetryingTrajectoryStore::DeadLetters(int64_t max_letters) {
  return Retry([&] { return store_.DeadLetters(max_letters); });
}

}  // namespace freshet
