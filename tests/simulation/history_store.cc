#include "tests/simulation/history_store.h"

#include "base/digest.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// Checksum of a prompt's content.
std::string PromptHash(const Prompt& prompt) {
  uint64_t hash = Xxh3(prompt.prompt_ids.data(), prompt.prompt_ids.size() * 4);
  for (const auto& [name, value] : prompt.attributes) {
    hash = Xxh3(name.data(), name.size(), hash);
    hash = Xxh3(value.data(), value.size(), hash);
  }
  return Hex64(hash);
}

}  // namespace

std::function<std::unique_ptr<TrajectoryStore>(std::unique_ptr<TrajectoryStore>)>
HistoryStore::Wrap(History* history) {
  if (history == nullptr) return nullptr;
  return [history](std::unique_ptr<TrajectoryStore> store) {
    return std::make_unique<HistoryStore>(std::move(store), *history);
  };
}

absl::StatusOr<PutPromptsReply> HistoryStore::PutPrompts(const std::vector<Prompt>& prompts) {
  std::string rows;
  for (const Prompt& prompt : prompts) {
    rows +=
        StrCat(rows.empty() ? "" : ",", "[", prompt.ordinal, R"(,")", PromptHash(prompt), R"("])");
  }
  if (!rows.empty()) history_.Add(StrCat(R"("event":"feed","prompts":[)", rows, "]"));
  return ForwardingTrajectoryStore::PutPrompts(prompts);
}

void HistoryStore::AddLease(const char* kind, const std::string& worker, int64_t begin,
                            const std::vector<int64_t>& tokens) {
  if (tokens.empty()) return;
  std::string list;
  for (const int64_t token : tokens) list += StrCat(list.empty() ? "" : ",", token);
  history_.Add(StrCat(R"("event":"lease","kind":")", kind, R"(","worker":")", worker,
                      R"(","begin":)", begin, R"(,"tokens":[)", list, "]"));
}

absl::StatusOr<LeaseReply> HistoryStore::LeasePrompts(const LeaseRequest& request) {
  const int64_t begin = History::Now();
  absl::StatusOr<LeaseReply> reply = ForwardingTrajectoryStore::LeasePrompts(request);
  if (!reply.ok()) return reply;
  std::vector<int64_t> tokens;
  {
    MutexLock lock(mu_);
    for (const GroupLease& lease : reply->leases) {
      leases_[lease.token] = {lease.ordinal, lease.attempt, 0};
      tokens.push_back(lease.token);
    }
  }
  AddLease("groups", request.worker, begin, tokens);
  return reply;
}

absl::StatusOr<std::vector<absl::Status>> HistoryStore::PutSamples(
    const std::vector<SamplePut>& samples) {
  absl::StatusOr<std::vector<absl::Status>> statuses =
      ForwardingTrajectoryStore::PutSamples(samples);
  for (size_t i = 0; i < samples.size(); ++i) {
    AddPut(samples[i], statuses.ok() ? (*statuses)[i] : statuses.status());
  }
  return statuses;
}

void HistoryStore::AddPut(const SamplePut& sample, const absl::Status& status) {
  const Response& response = *sample.response;
  const int64_t min_version = response.spans.empty() ? -1 : response.spans.front().policy.version;
  SampleKey key;
  {
    MutexLock lock(mu_);
    key = leases_[sample.token];
  }
  key.index = sample.index;
  history_.Add(StrCat(R"("event":"put","uid":")", SampleUid(options().job, key), R"(","hash":")",
                      ResponseHash(response), R"(","min_version":)", min_version, R"(,"code":)",
                      static_cast<int>(status.code())));
}

absl::StatusOr<std::vector<RowLease>> HistoryStore::LeaseRowsFor(const RowRequest& request) {
  const int64_t begin = History::Now();
  absl::StatusOr<std::vector<RowLease>> leases = ForwardingTrajectoryStore::LeaseRowsFor(request);
  if (!leases.ok()) return leases;
  std::vector<int64_t> tokens;
  {
    MutexLock lock(mu_);
    for (const RowLease& lease : *leases) {
      rows_[lease.token] = {lease.sample.uid, ResponseHash(*lease.sample.response)};
      tokens.push_back(lease.token);
    }
  }
  AddLease("rows", request.worker, begin, tokens);
  return leases;
}

absl::StatusOr<std::vector<absl::Status>> HistoryStore::PutRows(Task task,
                                                                const std::vector<RowPut>& rows) {
  absl::StatusOr<std::vector<absl::Status>> statuses =
      ForwardingTrajectoryStore::PutRows(task, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    AddScore(rows[i], statuses.ok() ? (*statuses)[i] : statuses.status());
  }
  return statuses;
}

void HistoryStore::AddScore(const RowPut& row, const absl::Status& status) {
  Row leased;
  {
    MutexLock lock(mu_);
    leased = rows_[row.token];
  }
  const Score& score = *row.values.score;
  history_.Add(StrCat(R"("event":"score","uid":")", leased.uid, R"(","hash":")", leased.hash,
                      R"(","token":)", row.token, R"(,"reward":)", score.reward, R"(,"outcome":)",
                      static_cast<int>(score.outcome), R"(,"code":)",
                      static_cast<int>(status.code())));
}

absl::StatusOr<int64_t> HistoryStore::RevokeWorker(const std::string& worker) {
  absl::StatusOr<int64_t> returned = ForwardingTrajectoryStore::RevokeWorker(worker);
  if (returned.ok()) history_.Add(StrCat(R"("event":"revoke","worker":")", worker, "\""));
  return returned;
}

absl::StatusOr<CommitReceipt> HistoryStore::CommitStep(int64_t epoch, int64_t step,
                                                       const std::vector<int64_t>& ordinals,
                                                       const std::string& content_hash) {
  absl::StatusOr<CommitReceipt> receipt =
      ForwardingTrajectoryStore::CommitStep(epoch, step, ordinals, content_hash);
  if (receipt.ok()) {
    history_.Add(StrCat(R"("event":"commit","epoch":)", epoch, R"(,"step":)", step,
                        R"(,"lineage":)", receipt->policy.lineage, R"(,"hash":")", content_hash,
                        "\""));
  }
  return receipt;
}

}  // namespace freshet
