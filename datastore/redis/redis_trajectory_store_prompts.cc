// The operations of prompts and of rollouts.
#include <utility>

#include "datastore/blob/trajectory_blob.h"
#include "datastore/redis/redis_trajectory_store.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"
#include "datastore/response_check.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

absl::Status Revoked(const std::string& worker) {
  return FailedPrecondition("worker ", worker, " is revoked: it must register again");
}

// What CheckResponse says under the bounds that a script gave: {min version, committed version}.
absl::Status Malformed(const Response& response, const std::vector<RedisReply>& values,
                       int64_t lineage, bool needs_loss) {
  if (values.size() < 2) return Internal("redis script: a refused response without its bounds");
  const absl::Status status =
      CheckResponse(response, {values[0].integer, {lineage, values[1].integer}, needs_loss});
  return status.ok() ? Internal("redis script refused a well-formed response") : status;
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
                           Run(trajectory_scripts::kPutPrompts, std::move(args), blobs));
  FRESHET_RETURN_IF_ERROR(answer.Expect(3));
  PutPromptsReply reply;
  reply.accepted = answer.values[0].integer;
  std::string_view high_water = answer.values[1].text;
  FRESHET_ASSIGN_OR_RETURN(reply.high_water, TakeNumber(high_water, ' '));
  reply.full = answer.values[2].integer == 1;
  return reply;
}

absl::StatusOr<GroupLease> RedisTrajectoryStore::ParseLease(const std::string& text,
                                                            std::vector<BlobPlace>& places) const {
  std::string_view rest = text;
  std::string_view head = TakePart(rest, '\n');
  GroupLease lease;
  FRESHET_ASSIGN_OR_RETURN(const int64_t token, TakeNumber(head, ' '));
  FRESHET_ASSIGN_OR_RETURN(lease.ordinal, TakeNumber(head, ' '));
  FRESHET_ASSIGN_OR_RETURN(const int64_t attempt, TakeNumber(head, ' '));
  FRESHET_ASSIGN_OR_RETURN(const int64_t expires, TakeNumber(head, ' '));
  lease.token = PortToken(token);
  lease.attempt = static_cast<int32_t>(attempt);
  lease.expires = absl::FromUnixMicros(expires);
  places.push_back(PromptPlace(lease.ordinal, attempt, std::string(head)));
  while (!rest.empty()) {
    std::string_view line = TakePart(rest, '\n');
    FRESHET_ASSIGN_OR_RETURN(const int64_t index, TakeNumber(line, ' '));
    lease.missing.push_back(static_cast<int32_t>(index));
    lease.partials.emplace_back();
    if (line.empty()) continue;
    FRESHET_ASSIGN_OR_RETURN(const SampleRecord record, ParseSampleRecord(line));
    places.push_back({StrCat(record.token, ":", index, ":", record.checksum), lease.ordinal,
                      attempt, StrCat("p", index), record.checksum, record.num_tokens * 9});
  }
  return lease;
}

absl::Status RedisTrajectoryStore::FillLease(GroupLease& lease,
                                             const std::vector<BlobPlace>& places, Bytes& bytes) {
  for (const BlobPlace& place : places) {
    if (place.ordinal != lease.ordinal || place.attempt != lease.attempt) continue;
    if (place.field == "ph") {
      const auto it = bytes.prompts.find(place.name);
      if (it == bytes.prompts.end()) return DataLoss("prompt of group ", lease.ordinal);
      lease.prompt = *it->second;
      continue;
    }
    const auto it = bytes.responses.find(place.name);
    if (it == bytes.responses.end()) return DataLoss("partial of group ", lease.ordinal);
    for (size_t i = 0; i < lease.missing.size(); ++i) {
      if (StrCat("p", lease.missing[i]) == place.field) lease.partials[i] = *it->second;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<LeaseReply> RedisTrajectoryStore::LeasePrompts(const LeaseRequest& request) {
  if (request.worker.empty()) return InvalidArgument("worker: empty: a lease needs a holder");
  if (request.max_groups < 0 || request.engine.version < 0 || request.engine.lineage < 0) {
    return InvalidArgument("lease request of ", request.worker, ": max_groups ", request.max_groups,
                           ", lineage ", request.engine.lineage, ", version ",
                           request.engine.version, ": none may be negative");
  }
  FRESHET_ASSIGN_OR_RETURN(const Answer answer,
                           Run(trajectory_scripts::kLeasePrompts,
                               {request.worker, request.request_id, StrCat(request.engine.lineage),
                                StrCat(request.engine.version), StrCat(request.max_groups)}));
  if (answer.code == Code::kRevoked) return Revoked(request.worker);
  FRESHET_RETURN_IF_ERROR(answer.Expect(2));
  LeaseReply reply;
  FRESHET_ASSIGN_OR_RETURN(reply.reason, LeaseReasonText(answer.values[0].text, config_));
  std::vector<GroupLease> leases;
  std::vector<BlobPlace> places;
  for (const RedisReply& text : answer.values[1].items) {
    FRESHET_ASSIGN_OR_RETURN(leases.emplace_back(), ParseLease(text.text, places));
  }
  if (leases.empty()) return reply;
  FRESHET_ASSIGN_OR_RETURN(Bytes bytes, Fetch(places));
  if (!bytes.corrupt.empty()) FRESHET_RETURN_IF_ERROR(DropCorrupt(bytes.corrupt));
  for (GroupLease& lease : leases) {
    // A group without its bytes has just ended.
    if (FillLease(lease, places, bytes).ok()) reply.leases.push_back(std::move(lease));
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
    std::string sum = "-";
    if (!empty && summary.well_formed && config_.options.staleness.max > 0) {
      FRESHET_ASSIGN_OR_RETURN(std::string bytes, EncodeResponse(partials[i]));
      FRESHET_ASSIGN_OR_RETURN(sum, BlobChecksum(bytes));
      blobs.push_back({StrCat(script_token, ":", indices[i], ":", sum), std::move(bytes)});
    }
    for (std::string arg : {StrCat(indices[i]),
                            std::string(empty                 ? "-"
                                        : summary.well_formed ? "1"
                                                              : "0"),
                            StrCat(summary.lineage), StrCat(summary.oldest), StrCat(summary.newest),
                            StrCat(summary.num_tokens), summary.spans, sum}) {
      args.push_back(std::move(arg));
    }
  }
  FRESHET_ASSIGN_OR_RETURN(const Answer answer,
                           Run(trajectory_scripts::kReturnLease, std::move(args), blobs));
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
    FRESHET_RETURN_IF_ERROR(answer.Expect(3));
    return Malformed(partials.at(static_cast<size_t>(answer.values[2].integer)), answer.values,
                     config_.origin.policy.lineage, /*needs_loss=*/false);
  }
  return absl::OkStatus();
}

absl::Status RedisTrajectoryStore::PutSample(int64_t token, int32_t index, Response response) {
  if (index < 0 || index >= config_.options.group_size) {
    return InvalidArgument("sample index ", index, " is out of range: groups have ",
                           config_.options.group_size, " samples");
  }
  const ResponseSummary summary = Summarize(response, /*needs_loss=*/true);
  const std::string script_token = ScriptToken(token);
  std::string sum = "-";
  std::vector<Blob> blobs;
  if (summary.well_formed) {
    FRESHET_ASSIGN_OR_RETURN(std::string bytes, EncodeResponse(response));
    FRESHET_ASSIGN_OR_RETURN(sum, BlobChecksum(bytes));
    blobs.push_back({StrCat(script_token, ":", index, ":", sum), std::move(bytes)});
  }
  FRESHET_ASSIGN_OR_RETURN(
      const Answer answer,
      Run(trajectory_scripts::kPutSample,
          {script_token, StrCat(index), summary.well_formed ? "1" : "0", StrCat(summary.lineage),
           StrCat(summary.oldest), StrCat(summary.newest), StrCat(summary.loss_oldest),
           StrCat(summary.loss_newest), StrCat(summary.num_tokens), summary.spans, sum},
          blobs));
  if (answer.code == Code::kDead) {
    return FailedPrecondition("lease ", token, " is not live: sample ", index, " is refused");
  }
  if (answer.code == Code::kResponse) {
    return Malformed(response, answer.values, config_.origin.policy.lineage, /*needs_loss=*/true);
  }
  return absl::OkStatus();
}

}  // namespace freshet
