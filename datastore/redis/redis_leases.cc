#include "datastore/redis/redis_leases.h"

#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/blob/trajectory_blob.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"

namespace freshet {
namespace {

constexpr size_t kMaxReasonBytes = 300;  // scripts keep at most this much

// A lease before its bytes are fetched.
struct PendingLease {
  GroupLease lease;
  std::shared_ptr<const Prompt> prompt;
  std::vector<std::shared_ptr<const Response>> partials;  // null: none
};

absl::Status Revoked(const std::string& worker) {
  return FailedPrecondition("worker ", worker, " is revoked: it must register again");
}

absl::Status NotLive(int64_t token) { return FailedPrecondition("lease ", token, " is not live"); }

absl::StatusOr<PendingLease> ParseLease(std::string_view text, const RedisStoreConfig& config,
                                        FetchPlan& plan) {
  std::string_view head = TakePart(text, '\n');
  PendingLease pending;
  GroupLease& lease = pending.lease;
  int64_t token = 0;
  int64_t expires = 0;
  FRESHET_RETURN_IF_ERROR(TakeNumbers(head, ' ', token, lease.ordinal, lease.attempt, expires));
  lease.token = config.PortToken(token);
  lease.expires = absl::FromUnixMicros(expires);
  const std::string_view sum = TakePart(head, ' ');
  if (!head.empty()) FRESHET_RETURN_IF_ERROR(TakeNumbers(head, ' ', lease.max_new_tokens));
  pending.prompt = plan.AddPrompt(lease.ordinal, lease.attempt, std::string(sum));
  while (!text.empty()) {
    std::string_view line = TakePart(text, '\n');
    FRESHET_RETURN_IF_ERROR(TakeNumbers(line, ' ', lease.missing.emplace_back()));
    std::shared_ptr<const Response>& partial = pending.partials.emplace_back();
    if (line.empty()) continue;
    const SampleKey key{lease.ordinal, lease.attempt, lease.missing.back()};
    FRESHET_ASSIGN_OR_RETURN(partial, plan.AddResponse(key, 'p', line));
  }
  return pending;
}

}  // namespace

absl::StatusOr<LeaseReply> RedisLeases::LeasePrompts(const LeaseRequest& request) {
  if (request.worker.empty()) return InvalidArgument("worker: empty: a lease needs a holder");
  if (request.max_groups < 0 || request.engine.version < 0 || request.engine.lineage < 0) {
    return InvalidArgument("lease request of ", request.worker, ": max_groups ", request.max_groups,
                           ", lineage ", request.engine.lineage, ", version ",
                           request.engine.version, ": none may be negative");
  }
  FRESHET_ASSIGN_OR_RETURN(
      const ScriptAnswer answer,
      runner_.Run(trajectory_scripts::kLeasePrompts,
                  {request.worker, request.request_id, StrCat(request.engine.lineage),
                   StrCat(request.engine.version), StrCat(request.max_groups),
                   StrCat(memory_.PressedPercent())}));
  if (answer.code == "REVOKED") return Revoked(request.worker);
  FRESHET_RETURN_IF_ERROR(answer.Expect(2));
  LeaseReply reply;
  FRESHET_ASSIGN_OR_RETURN(LeaseReason reason, ParseLeaseReason(answer.values[0].text, config_));
  reply.reason = std::move(reason.text);
  reply.committed = reason.committed;
  std::vector<PendingLease> leases;
  FetchPlan plan(config_.options.job);
  for (const RedisReply& text : answer.values[1].items) {
    FRESHET_ASSIGN_OR_RETURN(leases.emplace_back(), ParseLease(text.text, config_, plan));
  }
  FRESHET_ASSIGN_OR_RETURN(const std::set<int64_t> ended, reader_.Fetch(plan));
  for (auto& [lease, prompt, partials] : leases) {
    if (ended.contains(lease.ordinal)) continue;
    lease.prompt = *prompt;
    for (const auto& partial : partials) {
      lease.partials.push_back(partial == nullptr ? Response() : *partial);
    }
    reply.leases.push_back(std::move(lease));
  }
  return reply;
}

absl::StatusOr<std::vector<int64_t>> RedisLeases::Renew(const std::string& worker,
                                                        const std::vector<int64_t>& tokens) {
  std::vector<std::string> args = {worker};
  for (const int64_t token : tokens) args.push_back(config_.ScriptToken(token));
  FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer answer,
                           runner_.Run(trajectory_scripts::kRenewLeases, std::move(args)));
  if (answer.code == "REVOKED") return Revoked(worker);
  FRESHET_RETURN_IF_ERROR(answer.Expect(1));
  std::vector<int64_t> dead;
  for (const RedisReply& position : answer.values[0].items) {
    dead.push_back(tokens.at(static_cast<size_t>(position.integer)));
  }
  return dead;
}

absl::Status RedisLeases::Return(int64_t token, const std::vector<int32_t>& indices,
                                 const std::vector<Response>& partials) {
  const std::string script_token = config_.ScriptToken(token);
  const bool aligned = indices.size() == partials.size();
  std::vector<std::string> args = {script_token, StrCat(indices.size()), aligned ? "1" : "0"};
  std::vector<RedisBlob> blobs;
  for (size_t i = 0; aligned && i < indices.size(); ++i) {
    const bool empty = partials[i].response_ids.empty();
    const ResponseSummary summary = Summarize(partials[i], /*needs_loss=*/false);
    std::string record, blob;
    if (!empty && summary.well_formed && config_.options.staleness.max > 0) {
      FRESHET_ASSIGN_OR_RETURN(std::string bytes, EncodeResponse(partials[i]));
      FRESHET_ASSIGN_OR_RETURN(const std::string sum, BlobChecksum(bytes));
      const std::string place = StrCat(indices[i], ":", sum);
      record = SampleRecordText(script_token, sum, summary, StrCat(place, ":0:", bytes.size()));
      blob = StrCat(script_token, ":", place);
      blobs.push_back({blob, std::move(bytes)});
    }
    args.insert(args.end(), {StrCat(indices[i]),
                             empty                 ? "-"
                             : summary.well_formed ? "1"
                                                   : "0",
                             StrCat(summary.first_lineage), StrCat(summary.last_lineage),
                             StrCat(summary.oldest), StrCat(summary.newest), record, blob});
  }
  FRESHET_ASSIGN_OR_RETURN(
      const ScriptAnswer answer,
      runner_.Run(trajectory_scripts::kReturnLease, std::move(args), std::move(blobs)));
  if (answer.code == "DEAD") return NotLive(token);
  if (answer.code == "MISMATCH") {
    return InvalidArgument("partials: ", partials.size(), " for ", indices.size(), " indices");
  }
  if (answer.code == "INDEX") {
    FRESHET_RETURN_IF_ERROR(answer.Expect(2));
    return InvalidArgument("indices: sample ",
                           indices.at(static_cast<size_t>(answer.values[0].integer)), " of group ",
                           answer.values[1].text, " is out of range, repeated or finished");
  }
  if (answer.code == "RESPONSE") {
    FRESHET_RETURN_IF_ERROR(answer.Expect(4));
    return Malformed(partials.at(static_cast<size_t>(answer.values[3].integer)),
                     {answer.values[0].integer,
                      config_.origin.policy.lineage,
                      {answer.values[2].integer, answer.values[1].integer},
                      /*needs_loss=*/false});
  }
  return absl::OkStatus();
}

absl::Status RedisLeases::GiveUp(int64_t token, LeaseEnd end, const std::string& reason) {
  FRESHET_ASSIGN_OR_RETURN(
      const ScriptAnswer answer,
      runner_.Run(trajectory_scripts::kFailLease,
                  {config_.ScriptToken(token), Name(end), reason.substr(0, kMaxReasonBytes)}));
  return answer.code == "DEAD" ? NotLive(token) : absl::OkStatus();
}

absl::StatusOr<std::vector<RowLease>> RedisLeases::LeaseRows(const RowRequest& request) {
  const auto& [task, worker, request_id, max_rows] = request;
  if (worker.empty()) return InvalidArgument("worker: empty: a lease needs a holder");
  if (max_rows < 0) return InvalidArgument("max_rows: ", max_rows, " is negative");
  FRESHET_ASSIGN_OR_RETURN(
      const ScriptAnswer answer,
      runner_.Run(trajectory_scripts::kLeaseRows, {worker, StrCat(max_rows), request_id}));
  if (answer.code == "REVOKED") return Revoked(worker);
  FRESHET_RETURN_IF_ERROR(answer.Expect(2));
  FRESHET_ASSIGN_OR_RETURN(const int64_t expires, ParseNumber(answer.values[0].text));
  std::vector<RowLease> leases;
  FetchPlan plan(config_.options.job);
  std::map<SampleKey, std::shared_ptr<const Response>> known;  // of groups with several rows
  for (const RedisReply& row : answer.values[1].items) {
    std::string_view lines = row.text;
    std::string_view head = TakePart(lines, '\n');
    int64_t token = 0;
    SampleKey key;
    FRESHET_RETURN_IF_ERROR(TakeNumbers(head, ' ', token, key.ordinal, key.attempt, key.index));
    const std::string prompt_sum(TakePart(head, ' '));
    RowLease& lease = leases.emplace_back();
    lease.token = config_.PortToken(token);
    lease.expires = absl::FromUnixMicros(expires);
    FRESHET_ASSIGN_OR_RETURN(lease.sample, plan.AddSample(key, /*score=*/"", prompt_sum, head));
    while (!lines.empty()) {
      std::string_view line = TakePart(lines, '\n');
      SampleKey other = key;
      FRESHET_RETURN_IF_ERROR(TakeNumbers(line, ' ', other.index));
      std::shared_ptr<const Response>& response = known[other];
      if (response == nullptr) {
        FRESHET_ASSIGN_OR_RETURN(response, plan.AddResponse(other, 's', line));
      }
      lease.group.push_back(response);
    }
  }
  FRESHET_ASSIGN_OR_RETURN(const std::set<int64_t> ended, reader_.Fetch(plan));
  std::erase_if(leases,
                [&](const RowLease& lease) { return ended.contains(lease.sample.key.ordinal); });
  return leases;
}

absl::Status RedisLeases::EndRow(int64_t token, RowEnd end, const std::string& reason) {
  FRESHET_RETURN_IF_ERROR(CheckRowEnd(token, end));
  FRESHET_ASSIGN_OR_RETURN(const ScriptAnswer answer,
                           runner_.Run(trajectory_scripts::kEndRow,
                                       {config_.ScriptToken(token),
                                        end == RowEnd::kFailed ? "failed" : "returned", reason}));
  if (answer.code == "DEAD") return RowNotLive(token);
  if (answer.code == "DONE") {
    return FailedPrecondition("row lease ", token, " is done already");
  }
  return absl::OkStatus();
}

}  // namespace freshet
