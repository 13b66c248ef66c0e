// Operations of prompts and rollouts.
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/blob/trajectory_blob.h"
#include "datastore/redis/redis_trajectory_store.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"

namespace freshet {
namespace {

constexpr size_t kMaxReasonBytes = 300;  // scripts keep at most this much

absl::Status Revoked(const std::string& worker) {
  return FailedPrecondition("worker ", worker, " is revoked: it must register again");
}

}  // namespace

absl::StatusOr<PutPromptsReply> RedisTrajectoryStore::PutPrompts(
    const std::vector<Prompt>& prompts) {
  std::vector<std::string> args = {StrCat(prompts.size())};
  std::vector<Blob> blobs;
  for (const Prompt& prompt : prompts) {
    if (prompt.ordinal > kMaxScriptInteger) {
      return InvalidArgument("prompt ordinal ", prompt.ordinal, " is too large: use at most ",
                             kMaxScriptInteger);
    }
    FRESHET_ASSIGN_OR_RETURN(std::string bytes, EncodePrompt(prompt));
    FRESHET_ASSIGN_OR_RETURN(std::string sum, BlobChecksum(bytes));
    if (prompt.ordinal >= 0) {
      blobs.push_back({PromptPlace(prompt.ordinal, 0, sum).name, std::move(bytes)});
    }
    args.push_back(StrCat(prompt.ordinal));
    args.push_back(StrCat(prompt.first_attempt));
    args.push_back(std::move(sum));
  }
  FRESHET_ASSIGN_OR_RETURN(const Answer answer,
                           Run(trajectory_scripts::kPutPrompts, std::move(args), std::move(blobs)));
  FRESHET_RETURN_IF_ERROR(answer.Expect(3));
  PutPromptsReply reply;
  reply.accepted = answer.values[0].integer;
  std::string_view high_water = answer.values[1].text;
  FRESHET_ASSIGN_OR_RETURN(reply.high_water, TakeNumber(high_water, ' '));
  reply.full = answer.values[2].integer == 1;
  return reply;
}

absl::StatusOr<RedisTrajectoryStore::LeaseTicket> RedisTrajectoryStore::ParseLease(
    const std::string& text, FetchPlan& plan) const {
  std::string_view rest = text;
  std::string_view head = TakePart(rest, '\n');
  LeaseTicket ticket;
  GroupLease& lease = ticket.lease;
  FRESHET_ASSIGN_OR_RETURN(const int64_t token, TakeNumber(head, ' '));
  FRESHET_ASSIGN_OR_RETURN(lease.ordinal, TakeNumber(head, ' '));
  FRESHET_ASSIGN_OR_RETURN(const int64_t attempt, TakeNumber(head, ' '));
  FRESHET_ASSIGN_OR_RETURN(const int64_t expires, TakeNumber(head, ' '));
  lease.token = PortToken(token);
  lease.attempt = static_cast<int32_t>(attempt);
  lease.expires = absl::FromUnixMicros(expires);
  ticket.prompt = plan.AddPrompt(PromptPlace(lease.ordinal, attempt, std::string(head)));
  while (!rest.empty()) {
    std::string_view line = TakePart(rest, '\n');
    FRESHET_ASSIGN_OR_RETURN(const int64_t index, TakeNumber(line, ' '));
    lease.missing.push_back(static_cast<int32_t>(index));
    lease.partials.emplace_back();
    if (line.empty()) continue;
    FRESHET_ASSIGN_OR_RETURN(SampleRecord record, ParseSampleRecord(line));
    const size_t place =
        plan.Add({std::move(record.blob), lease.ordinal, attempt, StrCat("p", index),
                  std::move(record.checksum), record.offset, record.size});
    ticket.partials.emplace_back(lease.missing.size() - 1, place);
  }
  return ticket;
}

absl::StatusOr<GroupLease> RedisTrajectoryStore::FillLease(LeaseTicket ticket, const Bytes& bytes) {
  GroupLease& lease = ticket.lease;
  if (bytes.prompts[ticket.prompt] == nullptr) return DataLoss("prompt of group ", lease.ordinal);
  lease.prompt = *bytes.prompts[ticket.prompt];
  for (const auto& [i, place] : ticket.partials) {
    if (bytes.responses[place] == nullptr) return DataLoss("partial of group ", lease.ordinal);
    lease.partials[i] = *bytes.responses[place];
  }
  return std::move(lease);
}

absl::StatusOr<LeaseReply> RedisTrajectoryStore::LeasePrompts(const LeaseRequest& request) {
  if (request.worker.empty()) return InvalidArgument("worker: empty: a lease needs a holder");
  if (request.max_groups < 0 || request.engine.version < 0 || request.engine.lineage < 0) {
    return InvalidArgument("lease request of ", request.worker, ": max_groups ", request.max_groups,
                           ", lineage ", request.engine.lineage, ", version ",
                           request.engine.version, ": none may be negative");
  }
  FRESHET_ASSIGN_OR_RETURN(
      const Answer answer,
      Run(trajectory_scripts::kLeasePrompts,
          {request.worker, request.request_id, StrCat(request.engine.lineage),
           StrCat(request.engine.version), StrCat(request.max_groups), StrCat(PressedPercent())}));
  if (answer.code == Code::kRevoked) return Revoked(request.worker);
  FRESHET_RETURN_IF_ERROR(answer.Expect(2));
  LeaseReply reply;
  FRESHET_ASSIGN_OR_RETURN(LeaseReason reason, ParseLeaseReason(answer.values[0].text, config_));
  reply.reason = std::move(reason.text);
  reply.committed = reason.committed;
  std::vector<LeaseTicket> tickets;
  FetchPlan plan;
  for (const RedisReply& text : answer.values[1].items) {
    FRESHET_ASSIGN_OR_RETURN(tickets.emplace_back(), ParseLease(text.text, plan));
  }
  if (tickets.empty()) return reply;
  FRESHET_ASSIGN_OR_RETURN(const Bytes bytes, Fetch(plan));
  if (!bytes.corrupt.empty()) FRESHET_RETURN_IF_ERROR(DropCorrupt(bytes.corrupt));
  for (LeaseTicket& ticket : tickets) {
    absl::StatusOr<GroupLease> lease = FillLease(std::move(ticket), bytes);
    // A group whose bytes are missing has just ended.
    if (lease.ok()) reply.leases.push_back(*std::move(lease));
  }
  return reply;
}

absl::StatusOr<std::vector<int64_t>> RedisTrajectoryStore::RenewLeases(
    const std::string& worker, const std::vector<int64_t>& tokens) {
  std::vector<std::string> args = {worker};
  for (const int64_t token : tokens) args.push_back(ScriptToken(token));
  FRESHET_ASSIGN_OR_RETURN(const Answer answer,
                           Run(trajectory_scripts::kRenewLeases, std::move(args)));
  if (answer.code == Code::kRevoked) return Revoked(worker);
  FRESHET_RETURN_IF_ERROR(answer.Expect(1));
  std::vector<int64_t> dead;
  for (const RedisReply& position : answer.values[0].items) {
    dead.push_back(tokens.at(static_cast<size_t>(position.integer)));
  }
  return dead;
}

absl::Status RedisTrajectoryStore::ReturnLease(int64_t token, const std::vector<int32_t>& indices,
                                               const std::vector<Response>& partials) {
  const std::string script_token = ScriptToken(token);
  const bool aligned = indices.size() == partials.size();
  std::vector<std::string> args = {script_token, StrCat(indices.size()), aligned ? "1" : "0"};
  std::vector<Blob> blobs;
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
    for (std::string arg : {StrCat(indices[i]),
                            std::string(empty                 ? "-"
                                        : summary.well_formed ? "1"
                                                              : "0"),
                            StrCat(summary.first_lineage), StrCat(summary.last_lineage),
                            StrCat(summary.oldest), StrCat(summary.newest), record, blob}) {
      args.push_back(std::move(arg));
    }
  }
  FRESHET_ASSIGN_OR_RETURN(const Answer answer, Run(trajectory_scripts::kReturnLease,
                                                    std::move(args), std::move(blobs)));
  if (answer.code == Code::kDead) return FailedPrecondition("lease ", token, " is not live");
  if (answer.code == Code::kMismatch) {
    return InvalidArgument("partials: ", partials.size(), " for ", indices.size(), " indices");
  }
  if (answer.code == Code::kIndex) {
    FRESHET_RETURN_IF_ERROR(answer.Expect(2));
    return InvalidArgument("indices: sample ",
                           indices.at(static_cast<size_t>(answer.values[0].integer)), " of group ",
                           answer.values[1].text, " is out of range, repeated or finished");
  }
  if (answer.code == Code::kResponse) {
    FRESHET_RETURN_IF_ERROR(answer.Expect(4));
    return Malformed(partials.at(static_cast<size_t>(answer.values[3].integer)),
                     {answer.values[0].integer,
                      config_.origin.policy.lineage,
                      {answer.values[2].integer, answer.values[1].integer},
                      /*needs_loss=*/false});
  }
  return absl::OkStatus();
}

absl::Status RedisTrajectoryStore::FailLease(int64_t token, const std::string& reason) {
  return GiveUpLease(token, LeaseEnd::kFailed, reason);
}

absl::Status RedisTrajectoryStore::HandBackLease(int64_t token, const std::string& reason) {
  return GiveUpLease(token, LeaseEnd::kHandedBack, reason);
}

absl::Status RedisTrajectoryStore::GiveUpLease(int64_t token, LeaseEnd end,
                                               const std::string& reason) {
  FRESHET_ASSIGN_OR_RETURN(const Answer answer,
                           Run(trajectory_scripts::kFailLease,
                               {ScriptToken(token), Name(end), reason.substr(0, kMaxReasonBytes)}));
  if (answer.code == Code::kDead) return FailedPrecondition("lease ", token, " is not live");
  return absl::OkStatus();
}

}  // namespace freshet
