#include "tests/simulation/history_store.h"

#include <unistd.h>

#include <chrono>

#include "services/base/digest.h"
#include "services/base/log.h"
#include "services/base/str_cat.h"

namespace freshet {

History::History(const std::string& folder, const std::string& role) {
  absl::StatusOr<LineAppender> file =
      LineAppender::Open(StrCat(folder, "/", role, "-", ::getpid(), ".jsonl"));
  FRESHET_CHECK(file.ok());
  MutexLock lock(mu_);
  file_ = *std::move(file);
}

void History::Add(const std::string& fields) {
  MutexLock lock(mu_);
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  FRESHET_CHECK(file_.Append(StrCat(R"({"t":)", ns, ",", fields, "}\n")).ok());
}

std::string ResponseHash(const Response& response) {
  uint64_t hash = Xxh3(response.response_ids.data(), response.response_ids.size() * 4);
  hash = Xxh3(response.behavior_logprobs.data(), response.behavior_logprobs.size() * 4, hash);
  hash = Xxh3(response.loss_mask.data(), response.loss_mask.size(), hash);
  for (const Span& span : response.spans) {
    const int64_t fields[] = {span.policy.lineage, span.policy.version, span.begin, span.end};
    hash = Xxh3(fields, sizeof(fields), hash);
  }
  return Hex64(hash);
}

absl::StatusOr<LeaseReply> HistoryStore::LeasePrompts(const LeaseRequest& request) {
  absl::StatusOr<LeaseReply> reply = ForwardingTrajectoryStore::LeasePrompts(request);
  if (reply.ok()) {
    MutexLock lock(mu_);
    for (const GroupLease& lease : reply->leases) {
      leases_[lease.token] = {lease.ordinal, lease.attempt, 0};
    }
  }
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
