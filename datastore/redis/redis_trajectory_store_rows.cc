// The operations of reward and reference workers, and of the controller on workers.
#include <cstdio>
#include <set>
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

const char* TaskName(Task task) { return task == Task::kScore ? "score" : "ref_logprob"; }

std::string TaskNumber(Task task) { return StrCat(static_cast<int>(task)); }

absl::Status NotLive(Task task, int64_t token) {
  return FailedPrecondition("row lease ", token, " of task ", TaskName(task), " is not live");
}

// Every bit of the value.
std::string Exact(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

}  // namespace

absl::StatusOr<RowLease> RedisTrajectoryStore::ParseRow(const RedisReply& head,
                                                        const RedisReply& score,
                                                        const RedisReply& ref,
                                                        SampleTicket& ticket) const {
  std::string_view text = head.text;
  RowLease lease;
  FRESHET_ASSIGN_OR_RETURN(const int64_t token, TakeNumber(text, ' '));
  FRESHET_ASSIGN_OR_RETURN(ticket.key.ordinal, TakeNumber(text, ' '));
  FRESHET_ASSIGN_OR_RETURN(const int64_t attempt, TakeNumber(text, ' '));
  FRESHET_ASSIGN_OR_RETURN(const int64_t index, TakeNumber(text, ' '));
  lease.token = PortToken(token);
  ticket.key.attempt = static_cast<int32_t>(attempt);
  ticket.key.index = static_cast<int32_t>(index);
  ticket.prompt_sum = std::string(TakePart(text, ' '));
  ticket.record = std::string(text);
  ticket.score = score.text;
  ticket.ref = ref.text;
  return lease;
}

absl::StatusOr<std::vector<RowLease>> RedisTrajectoryStore::LeaseRows(Task task,
                                                                      const std::string& worker,
                                                                      int64_t max_rows) {
  if (worker.empty()) return InvalidArgument("worker: empty: a lease needs a holder");
  if (max_rows < 0) return InvalidArgument("max_rows: ", max_rows, " is negative");
  FRESHET_ASSIGN_OR_RETURN(const Answer answer, Run(trajectory_scripts::kLeaseRows,
                                                    {TaskNumber(task), worker, StrCat(max_rows)}));
  if (answer.code == Code::kRevoked) {
    return FailedPrecondition("worker ", worker, " is revoked: it must register again");
  }
  FRESHET_RETURN_IF_ERROR(answer.Expect(2));
  std::string_view expires_text = answer.values[0].text;
  FRESHET_ASSIGN_OR_RETURN(const int64_t expires, TakeNumber(expires_text, ' '));
  const std::vector<RedisReply>& fields = answer.values[1].items;
  std::vector<RowLease> leases;
  std::vector<SampleTicket> tickets;
  std::vector<BlobPlace> places;
  std::set<std::string> names;
  for (size_t i = 0; i + 2 < fields.size(); i += 3) {
    FRESHET_ASSIGN_OR_RETURN(
        leases.emplace_back(),
        ParseRow(fields[i], fields[i + 1], fields[i + 2], tickets.emplace_back()));
    leases.back().expires = absl::FromUnixMicros(expires);
    FRESHET_ASSIGN_OR_RETURN(std::vector<BlobPlace> own, PlacesOf(tickets.back()));
    for (BlobPlace& place : own) {
      if (names.insert(place.name).second) places.push_back(std::move(place));
    }
  }
  if (leases.empty()) return leases;
  FRESHET_ASSIGN_OR_RETURN(const Bytes bytes, Fetch(places));
  std::set<int64_t> unreadable;  // groups that have ended
  if (!bytes.corrupt.empty()) {
    FRESHET_RETURN_IF_ERROR(DropCorrupt(bytes.corrupt));
    for (const auto& [place, what] : bytes.corrupt) unreadable.insert(place.ordinal);
  }
  std::vector<RowLease> readable;
  for (size_t i = 0; i < leases.size(); ++i) {
    if (unreadable.contains(tickets[i].key.ordinal)) continue;
    FRESHET_ASSIGN_OR_RETURN(leases[i].sample, View(tickets[i], bytes));
    readable.push_back(std::move(leases[i]));
  }
  return readable;
}

absl::Status RedisTrajectoryStore::PutFields(Task task, int64_t token, FieldValues values) {
  const std::string script_token = ScriptToken(token);
  std::vector<std::string> args = {TaskNumber(task), script_token, "0", "0", ""};
  std::vector<Blob> blobs;
  if (task == Task::kScore && CheckScore(values.score.get()).ok()) {
    FRESHET_ASSIGN_OR_RETURN(args[4], EncodeScore(*values.score));
    args[2] = "1";
    args[3] = Exact(values.score->reward);
  } else if (task == Task::kRefLogprob && values.ref_logprobs != nullptr) {
    const int64_t count = static_cast<int64_t>(values.ref_logprobs->size());
    if (CheckRefLogprobs(values.ref_logprobs.get(), count).ok()) {
      FRESHET_ASSIGN_OR_RETURN(std::string bytes, EncodeFloats(*values.ref_logprobs));
      FRESHET_ASSIGN_OR_RETURN(args[4], BlobChecksum(bytes));
      args[2] = "1";
      args[3] = StrCat(count);
      blobs.push_back({StrCat(script_token, ":r:", args[4]), std::move(bytes)});
    }
  }
  FRESHET_ASSIGN_OR_RETURN(const Answer answer,
                           Run(trajectory_scripts::kPutFields, std::move(args), blobs));
  if (answer.code == Code::kDead) return NotLive(task, token);
  if (answer.code == Code::kField) {
    FRESHET_RETURN_IF_ERROR(answer.Expect(1));
    const absl::Status status = task == Task::kScore ? CheckScore(values.score.get())
                                                     : CheckRefLogprobs(values.ref_logprobs.get(),
                                                                        answer.values[0].integer);
    return status.ok() ? Internal("redis script refused a well-formed value") : status;
  }
  return absl::OkStatus();
}

absl::Status RedisTrajectoryStore::FailRow(Task task, int64_t token, const std::string& reason) {
  FRESHET_ASSIGN_OR_RETURN(
      const Answer answer,
      Run(trajectory_scripts::kFailRow, {TaskNumber(task), ScriptToken(token), reason}));
  if (answer.code == Code::kDead) return NotLive(task, token);
  if (answer.code == Code::kDone)
    return FailedPrecondition("row lease ", token, " is done already");
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RedisTrajectoryStore::RevokeWorker(const std::string& worker) {
  if (worker.empty()) return InvalidArgument("worker: empty: nobody to revoke");
  FRESHET_ASSIGN_OR_RETURN(const Answer answer, Run(trajectory_scripts::kRevokeWorker,
                                                    {worker, StrCat(kMaxRevokedWorkers)}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(1));
  return answer.values[0].integer;
}

}  // namespace freshet
