#include "datastore/memory/in_memory_evaluation_store.h"

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/response_check.h"

namespace freshet {

absl::Status InMemoryEvaluationStore::CheckCurrent(const std::string& id) const {
  if (id == id_ && !id.empty()) return absl::OkStatus();
  return EvaluationNotCurrent(id);
}

absl::Status InMemoryEvaluationStore::Begin(const std::string& id, int64_t rows) {
  FRESHET_RETURN_IF_ERROR(CheckEvaluation(id, rows));
  MutexLock lock(mu_);
  if (id == id_) return absl::OkStatus();
  id_ = id;
  total_ = rows;
  ended_ = 0;
  policy_ = {};
  abandoned_.clear();
  rows_.clear();
  return absl::OkStatus();
}

absl::Status InMemoryEvaluationStore::PutAnswers(const std::string& id, const PolicyVersion& policy,
                                                 const std::vector<EvaluationAnswer>& answers) {
  MutexLock lock(mu_);
  FRESHET_RETURN_IF_ERROR(CheckCurrent(id));
  FRESHET_RETURN_IF_ERROR(CheckAnswers(answers, total_));
  policy_ = policy;
  for (const EvaluationAnswer& answer : answers) {
    const auto [it, added] = rows_.try_emplace(answer.row);
    if (!added) continue;
    Row& row = it->second;
    row.answer = answer;
    if (answer.response != nullptr) {
      row.result.response_tokens = std::ssize(answer.response->response_ids);
      continue;
    }
    row.result.error = answer.error.substr(0, kMaxEvaluationErrorBytes);
    row.ended = true;
    ++ended_;
  }
  changes_.Increment(Topic::kEvaluation);
  return absl::OkStatus();
}

absl::Status InMemoryEvaluationStore::Abandon(const std::string& id, const std::string& reason) {
  MutexLock lock(mu_);
  FRESHET_RETURN_IF_ERROR(CheckCurrent(id));
  abandoned_ = reason.substr(0, kMaxEvaluationErrorBytes);
  return absl::OkStatus();
}

absl::StatusOr<EvaluationState> InMemoryEvaluationStore::Read(const std::string& id) {
  MutexLock lock(mu_);
  FRESHET_RETURN_IF_ERROR(CheckCurrent(id));
  ExpireLeases();
  EvaluationState state{policy_, std::ssize(rows_), ended_, abandoned_, {}};
  if (ended_ < total_) return state;
  for (const auto& [number, row] : rows_) state.rows.push_back(row.result);
  return state;
}

absl::Status InMemoryEvaluationStore::End(const std::string& id) {
  MutexLock lock(mu_);
  if (id != id_) return absl::OkStatus();
  id_.clear();
  rows_.clear();
  return absl::OkStatus();
}

RowLease InMemoryEvaluationStore::Lease(int64_t number, Row& row) {
  row.expires = clock_.Now() + lease_ttl_;
  RowLease lease{row.token, row.expires, {}};
  lease.sample.key = {number, 0, 0};
  lease.sample.uid = StrCat(id_, "/", number);
  lease.sample.prompt = row.answer.prompt;
  lease.sample.response = row.answer.response;
  return lease;
}

absl::StatusOr<std::vector<RowLease>> InMemoryEvaluationStore::LeaseRowsFor(
    const RowRequest& request) {
  FRESHET_RETURN_IF_ERROR(CheckEvaluationRequest(request));
  MutexLock lock(mu_);
  ExpireLeases();
  std::vector<RowLease> leases;
  for (auto& [number, row] : rows_) {
    const bool repeats = row.leased && !request.request_id.empty() &&
                         row.worker == request.worker && row.request_id == request.request_id;
    if (repeats) leases.push_back(Lease(number, row));
  }
  if (!leases.empty()) return leases;
  for (auto& [number, row] : rows_) {
    if (std::ssize(leases) >= request.max_rows) break;
    if (row.leased || row.ended) continue;
    row.leased = true;
    row.token = ++last_token_;
    row.worker = request.worker;
    row.request_id = request.request_id;
    leases.push_back(Lease(number, row));
  }
  return leases;
}

InMemoryEvaluationStore::Row* InMemoryEvaluationStore::Find(int64_t token) {
  for (auto& [number, row] : rows_) {
    if (row.token == token && (row.leased || row.ended)) return &row;
  }
  return nullptr;
}

absl::StatusOr<std::vector<absl::Status>> InMemoryEvaluationStore::PutRows(
    Task, const std::vector<RowPut>& rows) {
  MutexLock lock(mu_);
  ExpireLeases();
  std::vector<absl::Status> statuses;
  for (const auto& [token, values] : rows) {
    Row* const row = Find(token);
    if (row == nullptr || (row->ended && row->result.score == nullptr)) {
      statuses.push_back(EvaluationLeaseNotLive(token));
      continue;
    }
    statuses.push_back(CheckScore(values.score.get()));
    if (row->ended || !statuses.back().ok()) continue;
    row->leased = false;
    row->ended = true;
    row->result.score = values.score;
    row->answer = {};
    ++ended_;
  }
  return statuses;
}

void InMemoryEvaluationStore::EndLease(Row& row, RowEnd end, const std::string& reason) {
  row.leased = false;
  const RowEndDecision decision = DecideRowEnd(end, row.counts, max_row_failures_);
  row.counts = decision.counts;
  if (!decision.dead) return changes_.Increment(Topic::kEvaluation);
  row.ended = true;
  row.result.error = reason.substr(0, kMaxEvaluationErrorBytes);
  row.answer = {};
  ++ended_;
}

void InMemoryEvaluationStore::ExpireLeases() {
  const absl::Time now = clock_.Now();
  for (auto& [number, row] : rows_) {
    if (!row.leased || row.expires > now) continue;
    EndLease(row, RowEnd::kWorkerLost, StrCat("lease of ", row.worker, " expired"));
  }
}

absl::Status InMemoryEvaluationStore::EndRow(Task, int64_t token, RowEnd end,
                                             const std::string& reason) {
  FRESHET_RETURN_IF_ERROR(CheckRowEnd(token, end));
  MutexLock lock(mu_);
  ExpireLeases();
  Row* const row = Find(token);
  if (row == nullptr || row->ended) return EvaluationLeaseNotLive(token);
  EndLease(*row, end, reason);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> InMemoryEvaluationStore::RenewLeases(
    const std::string& worker, const std::vector<int64_t>& tokens) {
  MutexLock lock(mu_);
  ExpireLeases();
  std::vector<int64_t> dead;
  for (const int64_t token : tokens) {
    Row* const row = Find(token);
    if (row == nullptr || row->ended || row->worker != worker) {
      dead.push_back(token);
    } else {
      row->expires = clock_.Now() + lease_ttl_;
    }
  }
  return dead;
}

}  // namespace freshet
