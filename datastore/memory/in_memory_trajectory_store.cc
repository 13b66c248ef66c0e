#include "datastore/memory/in_memory_trajectory_store.h"

#include <utility>

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
  for (int topic = 0; topic < kNumTopics; ++topic) {
    if ((changes >> topic & 1u) != 0) changes_.Increment(static_cast<Topic>(topic));
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
    Task, const std::vector<RowPut>& rows) {
  std::vector<absl::Status> statuses;
  MutexLock lock(mu_);
  const absl::Time now = clock_.Now();
  for (const RowPut& row : rows) {
    statuses.push_back(state_.PutFields(row.token, row.values, now));
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
  StoreStats stats;
  {
    MutexLock lock(mu_);
    stats = state_.Stats();
  }
  stats.calls = calls_.Read();
  return stats;
}

absl::StatusOr<PromptCursor> InMemoryTrajectoryStore::Cursor() {
  MutexLock lock(mu_);
  return state_.Cursor();
}

CurationState InMemoryTrajectoryStore::Curation(int64_t max_success_bytes) {
  MutexLock lock(mu_);
  return state_.Curation(max_success_bytes);
}

absl::Status InMemoryTrajectoryStore::RestoreCuration(CurationState state) {
  MutexLock lock(mu_);
  return state_.RestoreCuration(std::move(state));
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

void InMemoryTrajectoryStore::Close() {
  evaluations_.Close();
  changes_.Close();
}

}  // namespace freshet
