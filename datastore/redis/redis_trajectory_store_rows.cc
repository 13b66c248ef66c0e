// Operations of reward and reference workers, and of the controller on workers.
#include <set>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_trajectory_store.h"
#include "datastore/redis/redis_trajectory_store_records.h"
#include "datastore/redis/trajectory_scripts.h"

namespace freshet {
namespace {

std::string TaskNumber(Task task) { return StrCat(static_cast<int>(task)); }

}  // namespace

// Returns the lease token.
absl::StatusOr<int64_t> RedisTrajectoryStore::ParseRow(const RedisReply& head,
                                                       const RedisReply& score,
                                                       const RedisReply& ref, FetchPlan& plan,
                                                       SampleTicket& ticket) const {
  std::string_view text = head.text;
  FRESHET_ASSIGN_OR_RETURN(const int64_t token, TakeNumber(text, ' '));
  FRESHET_ASSIGN_OR_RETURN(ticket.key.ordinal, TakeNumber(text, ' '));
  FRESHET_ASSIGN_OR_RETURN(const int64_t attempt, TakeNumber(text, ' '));
  FRESHET_ASSIGN_OR_RETURN(const int64_t index, TakeNumber(text, ' '));
  ticket.key.attempt = static_cast<int32_t>(attempt);
  ticket.key.index = static_cast<int32_t>(index);
  ticket.score = score.text;
  const std::string prompt_sum(TakePart(text, ' '));
  FRESHET_RETURN_IF_ERROR(AddPlaces(text, ref.text, prompt_sum, plan, ticket));
  return PortToken(token);
}

absl::StatusOr<std::vector<RowLease>> RedisTrajectoryStore::LeaseRowsFor(
    const RowRequest& request) {
  const auto& [task, worker, request_id, max_rows] = request;
  if (worker.empty()) return InvalidArgument("worker: empty: a lease needs a holder");
  if (max_rows < 0) return InvalidArgument("max_rows: ", max_rows, " is negative");
  FRESHET_ASSIGN_OR_RETURN(const Answer answer,
                           Run(trajectory_scripts::kLeaseRows,
                               {TaskNumber(task), worker, StrCat(max_rows), request_id}));
  if (answer.code == Code::kRevoked) {
    return FailedPrecondition("worker ", worker, " is revoked: it must register again");
  }
  FRESHET_RETURN_IF_ERROR(answer.Expect(2));
  std::string_view expires_text = answer.values[0].text;
  FRESHET_ASSIGN_OR_RETURN(const int64_t expires, TakeNumber(expires_text, ' '));
  const std::vector<RedisReply>& fields = answer.values[1].items;
  std::vector<RowLease> leases;
  std::vector<SampleTicket> tickets;
  FetchPlan plan;
  for (size_t i = 0; i + 2 < fields.size(); i += 3) {
    RowLease lease;
    FRESHET_ASSIGN_OR_RETURN(lease.token, ParseRow(fields[i], fields[i + 1], fields[i + 2], plan,
                                                   tickets.emplace_back()));
    lease.expires = absl::FromUnixMicros(expires);
    leases.push_back(std::move(lease));
  }
  if (leases.empty()) return leases;
  FRESHET_ASSIGN_OR_RETURN(const Bytes bytes, Fetch(plan));
  std::set<int64_t> unreadable;  // ordinals of ended groups
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

absl::Status RedisTrajectoryStore::EndRow(Task task, int64_t token, RowEnd end,
                                          const std::string& reason) {
  if (end != RowEnd::kFailed && end != RowEnd::kReturned) {
    return InvalidArgument("end of row lease ", token, ": only a failure or a return is reported");
  }
  FRESHET_ASSIGN_OR_RETURN(
      const Answer answer,
      Run(trajectory_scripts::kEndRow, {TaskNumber(task), ScriptToken(token),
                                        end == RowEnd::kFailed ? "failed" : "returned", reason}));
  if (answer.code == Code::kDead) return RowNotLive(task, token);
  if (answer.code == Code::kDone)
    return FailedPrecondition("row lease ", token, " is done already");
  return absl::OkStatus();
}

absl::StatusOr<int64_t> RedisTrajectoryStore::RevokeWorker(const std::string& worker) {
  if (worker.empty()) return InvalidArgument("worker: empty: no worker to revoke");
  FRESHET_ASSIGN_OR_RETURN(const Answer answer, Run(trajectory_scripts::kRevokeWorker,
                                                    {worker, StrCat(kMaxRevokedWorkers)}));
  FRESHET_RETURN_IF_ERROR(answer.Expect(1));
  return answer.values[0].integer;
}

}  // namespace freshet
