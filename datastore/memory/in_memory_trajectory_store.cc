#include "datastore/memory/in_memory_trajectory_store.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

absl::StatusOr<std::unique_ptr<InMemoryTrajectoryStore>> InMemoryTrajectoryStore::Create(
    StoreOptions options, StoreOrigin origin, const Clock& clock) {
  FRESHET_RETURN_IF_ERROR(options.Validate());
  FRESHET_RETURN_IF_ERROR(origin.Validate());
  return std::unique_ptr<InMemoryTrajectoryStore>(
      new InMemoryTrajectoryStore(std::move(options), std::move(origin), clock));
}

InMemoryTrajectoryStore::InMemoryTrajectoryStore(StoreOptions options, StoreOrigin origin,
                                                 const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      state_(options_, std::move(origin)),
      evaluations_(options_.lease_ttl, options_.max_row_failures, clock) {}

void InMemoryTrajectoryStore::Announce() {
  const uint32_t changes = state_.TakeChanges();
  for (size_t topic = 0; topic < changed_.size(); ++topic) {
    if ((changes >> topic & 1u) == 0) continue;
    ++change_counts_[topic];
    changed_[topic].NotifyAll();
  }
}

absl::StatusOr<std::vector<absl::Status>> InMemoryTrajectoryStore::PutSamples(
    const std::vector<SamplePut>& samples) {
  std::vector<absl::Status> statuses;
  MutexLock lock(mu_);
  const absl::Time now = clock_.Now();
  for (const SamplePut& sample : samples) statuses.push_back(state_.PutSample(sample, now));
  Announce();
  return statuses;
}

absl::Status InMemoryTrajectoryStore::CountGeneration(const GenerationTotals& added) {
  FRESHET_RETURN_IF_ERROR(added.Validate());
  MutexLock lock(mu_);
  state_.CountGeneration(added);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<absl::Status>> InMemoryTrajectoryStore::PutRows(
    Task task, const std::vector<RowPut>& rows) {
  std::vector<absl::Status> statuses;
  MutexLock lock(mu_);
  const absl::Time now = clock_.Now();
  for (const RowPut& row : rows) {
    statuses.push_back(state_.PutFields(task, row.token, row.values, now));
  }
  Announce();
  return statuses;
}

absl::Status InMemoryTrajectoryStore::RecordResume(int64_t epoch_hint, int64_t parent_lineage,
                                                   int64_t fork_version,
                                                   const std::string& checkpoint_sha256) {
  MutexLock lock(mu_);
  return state_.RecordResume(epoch_hint, parent_lineage, fork_version, checkpoint_sha256);
}

absl::StatusOr<StoreStats> InMemoryTrajectoryStore::Stats() {
  MutexLock lock(mu_);
  return state_.Stats();
}

absl::StatusOr<PromptCursor> InMemoryTrajectoryStore::Cursor() {
  MutexLock lock(mu_);
  return state_.Cursor();
}

absl::StatusOr<std::vector<LedgerRow>> InMemoryTrajectoryStore::ReadLedger(int64_t after_seq,
                                                                           int64_t max_rows) {
  if (after_seq < 0 || max_rows < 0) {
    return InvalidArgument("ledger read after ", after_seq, " of ", max_rows,
                           " rows: neither may be negative");
  }
  MutexLock lock(mu_);
  return state_.ReadLedger(after_seq, max_rows);
}

absl::Status InMemoryTrajectoryStore::TrimLedger(int64_t upto_seq) {
  MutexLock lock(mu_);
  state_.TrimLedger(upto_seq);
  Announce();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DeadLetter>> InMemoryTrajectoryStore::DeadLetters(int64_t max_letters) {
  if (max_letters < 1) {
    return InvalidArgument("max_letters: ", max_letters, " is too small: use at least 1");
  }
  MutexLock lock(mu_);
  return state_.DeadLetters(max_letters);
}

uint64_t InMemoryTrajectoryStore::ChangeCount(Topic topic) {
  MutexLock lock(mu_);
  return change_counts_[static_cast<size_t>(topic)];
}

uint64_t InMemoryTrajectoryStore::AwaitChange(Topic topic, uint64_t seen, absl::Duration timeout) {
  const size_t index = static_cast<size_t>(topic);
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(mu_);
  while (!closed_ && change_counts_[index] <= seen) {
    // The system's wait takes no infinite timeout.
    const absl::Duration left = std::min(deadline - absl::Now(), absl::Seconds(60));
    if (left <= absl::ZeroDuration()) break;
    changed_[index].WaitFor(mu_, left);
  }
  return change_counts_[index];
}

void InMemoryTrajectoryStore::Close() {
  evaluations_.Close();
  MutexLock lock(mu_);
  closed_ = true;
  for (CondVar& condition : changed_) condition.NotifyAll();
}

}  // namespace freshet
