#include "datastore/redis/redis_evaluation_store.h"

#include <limits>
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/blob/trajectory_blob.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"
#include "datastore/response_check.h"

namespace freshet {
namespace {

constexpr size_t kMaxPutBytes = 4 << 20;
constexpr int64_t kRowsPerRead = 1000;

absl::Status DecodeRow(const std::string& prompt, const std::string& response, SampleView& sample) {
  FRESHET_ASSIGN_OR_RETURN(Prompt decoded, DecodePrompt(prompt));
  sample.prompt = std::make_shared<const Prompt>(std::move(decoded));
  FRESHET_ASSIGN_OR_RETURN(Response answer, DecodeResponse(response));
  sample.response = std::make_shared<const Response>(std::move(answer));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ScriptAnswer> RedisEvaluationStore::Run(const std::string& id,
                                                       const RedisScript& script,
                                                       std::vector<std::string> args) {
  FRESHET_ASSIGN_OR_RETURN(ScriptAnswer answer, runner_.Run(script, std::move(args)));
  if (answer.code == "OTHER") return EvaluationNotCurrent(id);
  return answer;
}

absl::Status RedisEvaluationStore::Begin(const std::string& id, int64_t rows) {
  FRESHET_RETURN_IF_ERROR(CheckEvaluation(id, rows));
  return Run(id, trajectory_scripts::kPutEvaluation, {"begin", id, StrCat(rows)}).status();
}

absl::Status RedisEvaluationStore::PutAnswers(const std::string& id, const PolicyVersion& policy,
                                              const std::vector<EvaluationAnswer>& answers) {
  FRESHET_RETURN_IF_ERROR(CheckAnswers(answers, std::numeric_limits<int64_t>::max()));
  const std::vector<std::string> head = {"put", id, StrCat(policy.lineage), StrCat(policy.version)};
  std::vector<std::string> args = head;
  size_t bytes = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const EvaluationAnswer& answer = answers[i];
    args.push_back(StrCat(answer.row));
    if (answer.response != nullptr) {
      FRESHET_ASSIGN_OR_RETURN(std::string prompt, EncodePrompt(*answer.prompt));
      FRESHET_ASSIGN_OR_RETURN(std::string response, EncodeResponse(*answer.response));
      bytes += prompt.size() + response.size();
      args.insert(args.end(), {StrCat(answer.response->response_ids.size()), std::move(prompt),
                               std::move(response)});
    } else {
      args.insert(args.end(), {"", answer.error.substr(0, kMaxEvaluationErrorBytes), ""});
    }
    if (bytes < kMaxPutBytes && i + 1 < answers.size()) continue;
    FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer put, Run(id, trajectory_scripts::kPutEvaluation,
                                                         std::exchange(args, head)));
    bytes = 0;
    if (put.code != "RANGE") continue;
    FRESHET_RETURN_IF_ERROR(put.Expect(2));
    return CheckAnswers(answers, put.values[1].integer);
  }
  return absl::OkStatus();
}

absl::Status RedisEvaluationStore::Abandon(const std::string& id, const std::string& reason) {
  return Run(id, trajectory_scripts::kEvaluate, {"abandon", id, reason}).status();
}

absl::Status RedisEvaluationStore::ReadSlice(const std::string& id, int64_t first, int64_t count,
                                             EvaluationState& state, int64_t& total) {
  FRESHET_ASSIGN_OR_RETURN(
      const ScriptAnswer answer,
      Run(id, trajectory_scripts::kEvaluate, {"read", id, StrCat(first), StrCat(count)}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(7));
  const std::vector<RedisReply>& values = answer.values;
  FRESHET_ASSIGN_OR_RETURN(state.policy.lineage, ParseNumber(values[0].text));
  FRESHET_ASSIGN_OR_RETURN(state.policy.version, ParseNumber(values[1].text));
  state.answered = values[2].integer;
  state.ended = values[3].integer;
  total = values[4].integer;
  state.abandoned = values[5].text;
  const std::vector<RedisReply>& rows = values[6].items;
  for (size_t i = 0; i + 2 < rows.size(); i += 3) {
    EvaluationRow& row = state.rows.emplace_back();
    row.response_tokens = rows[i].integer;
    if (rows[i + 1].text == "f") {
      row.error = rows[i + 2].text;
      continue;
    }
    FRESHET_ASSIGN_OR_RETURN(Score score, DecodeScore(rows[i + 2].text));
    row.score = std::make_shared<const Score>(std::move(score));
  }
  return absl::OkStatus();
}

absl::StatusOr<EvaluationState> RedisEvaluationStore::Read(const std::string& id) {
  EvaluationState state;
  int64_t total = 0;
  do {
    const int64_t known = std::ssize(state.rows);
    FRESHET_RETURN_IF_ERROR(ReadSlice(id, known, kRowsPerRead, state, total));
    if (std::ssize(state.rows) == known) break;
  } while (std::ssize(state.rows) < total);
  return state;
}

absl::Status RedisEvaluationStore::End(const std::string& id) {
  const absl::Status status = Run(id, trajectory_scripts::kEvaluate, {"end", id}).status();
  return absl::IsFailedPrecondition(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::vector<RowLease>> RedisEvaluationStore::LeaseRowsFor(
    const RowRequest& request) {
  FRESHET_RETURN_IF_ERROR(CheckEvaluationRequest(request));
  FRESHET_ASSIGN_OR_RETURN(
      const ScriptAnswer answer,
      runner_.Run(trajectory_scripts::kEvaluate,
                  {"lease", request.worker, StrCat(request.max_rows), request.request_id}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(3));
  FRESHET_ASSIGN_OR_RETURN(const int64_t expires, ParseNumber(answer.values[0].text));
  const std::vector<RedisReply>& fields = answer.values[2].items;
  std::vector<RowLease> leases;
  for (size_t i = 0; i + 3 < fields.size(); i += 4) {
    RowLease lease;
    FRESHET_ASSIGN_OR_RETURN(const int64_t token, ParseNumber(fields[i].text));
    FRESHET_ASSIGN_OR_RETURN(lease.sample.key.ordinal, ParseNumber(fields[i + 1].text));
    lease.token = runner_.config().PortToken(token);
    lease.expires = absl::FromUnixMicros(expires);
    lease.sample.uid = StrCat(answer.values[1].text, "/", lease.sample.key.ordinal);
    const absl::Status decoded = DecodeRow(fields[i + 2].text, fields[i + 3].text, lease.sample);
    if (decoded.ok()) {
      leases.push_back(std::move(lease));
    } else {
      FRESHET_RETURN_IF_ERROR(
          EndRow(request.task, lease.token, RowEnd::kFailed, std::string(decoded.message())));
    }
  }
  return leases;
}

absl::StatusOr<std::vector<absl::Status>> RedisEvaluationStore::PutRows(
    Task, const std::vector<RowPut>& rows) {
  std::vector<std::string> args = {"score"};
  for (const auto& [token, values] : rows) {
    args.push_back(runner_.config().ScriptToken(token));
    std::string& score = args.emplace_back();
    if (!CheckScore(values.score.get()).ok()) continue;
    FRESHET_ASSIGN_OR_RETURN(score, EncodeScore(*values.score));
  }
  FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer answer,
                           runner_.Run(trajectory_scripts::kEvaluate, std::move(args)));
  FRESHET_RETURN_IF_ERROR(answer.Expect(1));
  std::vector<absl::Status> statuses(rows.size());
  for (const RedisReply& fault : answer.values[0].items) {
    if (fault.items.size() != 2) return Internal("redis script: a fault is no pair");
    const auto position = static_cast<size_t>(fault.items[0].integer);
    const RowPut& row = rows.at(position);
    statuses[position] = fault.items[1].text == "FIELD" ? CheckScore(row.values.score.get())
                                                        : EvaluationLeaseNotLive(row.token);
  }
  return statuses;
}

absl::Status RedisEvaluationStore::EndRow(Task, int64_t token, RowEnd end,
                                          const std::string& reason) {
  FRESHET_RETURN_IF_ERROR(CheckRowEnd(token, end));
  FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer answer,
                           runner_.Run(trajectory_scripts::kEvaluate,
                                       {"end_row", runner_.config().ScriptToken(token),
                                        end == RowEnd::kFailed ? "failed" : "returned", reason}));
  return answer.code == "DEAD" ? EvaluationLeaseNotLive(token) : absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> RedisEvaluationStore::RenewLeases(
    const std::string& worker, const std::vector<int64_t>& tokens) {
  std::vector<std::string> args = {"renew", worker};
  for (const int64_t token : tokens) args.push_back(runner_.config().ScriptToken(token));
  FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer answer,
                           runner_.Run(trajectory_scripts::kEvaluate, std::move(args)));
  FRESHET_RETURN_IF_ERROR(answer.Expect(1));
  std::vector<int64_t> dead;
  for (const RedisReply& position : answer.values[0].items) {
    dead.push_back(tokens.at(static_cast<size_t>(position.integer)));
  }
  return dead;
}

}  // namespace freshet
