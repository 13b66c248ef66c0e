#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/memory/job_state.h"
#include "datastore/response_check.h"

namespace freshet {
namespace {

// Number of workers whose last reply is remembered.
constexpr size_t kMaxRowAnswers = 1024;

}  // namespace

SampleKey JobState::KeyOf(const Group& group, int32_t index) const {
  const bool replayed = !group.samples[static_cast<size_t>(index)].replay_of.empty();
  return {group.ordinal, group.attempt, replayed ? options_.group_size + index : index};
}

LossWindow JobState::WindowOf(const SampleSlot& slot, int64_t version) const {
  return ComputeLossWindow(options_.BoundOf(!slot.replay_of.empty()), version, slot.Tokens());
}

SampleView JobState::View(const Group& group, int32_t index) const {
  const SampleSlot& slot = group.samples[static_cast<size_t>(index)];
  SampleView view;
  view.key = KeyOf(group, index);
  view.uid = SampleUid(options_.job, view.key);
  view.replay_of = slot.replay_of;
  view.prompt = group.prompt;
  view.response = slot.response;
  view.score = slot.score;
  return view;
}

void JobState::FillRowLease(const Group& group, int32_t index, RowLease& lease) const {
  lease.sample = View(group, index);
  if (!options_.score_whole_groups) return;
  for (const SampleSlot& slot : group.samples) lease.group.push_back(slot.response);
}

absl::StatusOr<std::vector<RowLease>> JobState::LeaseRows(const RowRequest& request,
                                                          absl::Time now) {
  const auto& [task, worker, request_id, max_rows] = request;
  if (worker.empty()) return InvalidArgument("worker: empty: a lease needs a holder");
  if (max_rows < 0) return InvalidArgument("max_rows: ", max_rows, " is negative");
  FRESHET_RETURN_IF_ERROR(CheckWorker(worker));
  ExpireLeases(now);
  const auto known = row_answers_.find(worker);
  if (known != row_answers_.end() && known->second.request_id == request_id) {
    return RepeatRows(known->second, now);
  }
  std::vector<RowLease> leases;
  RowAnswer answer{request_id, {}};
  const absl::Time expires = now + options_.lease_ttl;
  while (static_cast<int64_t>(leases.size()) < max_rows && rows_.pending() > 0) {
    RowLease lease;
    lease.token = NewToken();
    lease.expires = expires;
    answer.tokens.push_back(lease.token);
    const std::optional<RowKey> key = rows_.Take(groups_, lease.token, worker, expires);
    FRESHET_CHECK(key.has_value());
    FillRowLease(groups_.Get(std::get<1>(*key)), std::get<2>(*key), lease);
    next_expiry_ = std::min(next_expiry_, expires);
    leases.push_back(std::move(lease));
  }
  const bool remember = known != row_answers_.end() || row_answers_.size() < kMaxRowAnswers;
  if (!leases.empty() && !request_id.empty() && remember) row_answers_[worker] = std::move(answer);
  return leases;
}

std::vector<RowLease> JobState::RepeatRows(const RowAnswer& answer, absl::Time now) {
  std::vector<RowLease> leases;
  for (const int64_t token : answer.tokens) {
    RowHold* hold = rows_.Find(token);
    if (hold == nullptr || hold->done) continue;
    hold->expires = now + options_.lease_ttl;
    RowLease& lease = leases.emplace_back();
    lease.token = token;
    lease.expires = hold->expires;
    FillRowLease(groups_.Get(hold->ordinal), hold->index, lease);
  }
  return leases;
}

absl::StatusOr<RowHold*> JobState::LiveRow(int64_t token) {
  RowHold* hold = rows_.Find(token);
  if (hold == nullptr) return FailedPrecondition("row lease ", token, " is not live");
  return hold;
}

absl::Status JobState::PutFields(int64_t token, FieldValues values, absl::Time now) {
  ExpireLeases(now);
  FRESHET_ASSIGN_OR_RETURN(RowHold * hold, LiveRow(token));
  if (hold->done) return absl::OkStatus();
  Group& group = groups_.Get(hold->ordinal);
  FRESHET_RETURN_IF_ERROR(CheckScore(values.score.get()));
  group.samples[static_cast<size_t>(hold->index)].score = std::move(values.score);
  rows_.SetDone(group, token);
  Advance(group, now);
  return absl::OkStatus();
}

absl::Status JobState::EndRow(int64_t token, RowEnd end, const std::string& reason,
                              absl::Time now) {
  FRESHET_RETURN_IF_ERROR(CheckRowEnd(token, end));
  ExpireLeases(now);
  FRESHET_ASSIGN_OR_RETURN(RowHold * hold, LiveRow(token));
  if (hold->done) return FailedPrecondition("row lease ", token, " is done already");
  EndHeldRow(token, end, reason, now);
  return absl::OkStatus();
}

void JobState::EndHeldRow(int64_t token, RowEnd end, const std::string& reason, absl::Time now) {
  const RowHold hold = *rows_.Find(token);
  Group& group = groups_.Get(hold.ordinal);
  RowProgress& progress = group.samples[static_cast<size_t>(hold.index)].row;
  rows_.Release(group, token);
  const RowEndDecision decision = DecideRowEnd(end, progress.counts, options_.max_row_failures);
  progress.counts = decision.counts;
  if (decision.dead) {
    EndGroup(group, LedgerEvent::kDead, "score_failed",
             StrCat(decision.counts.failures, " times: ", reason), now);
    return;
  }
  rows_.Offer(group, hold.index);
  Changed(Topic::kRows);
}

void JobState::Advance(Group& group, absl::Time now) {
  if (group.state != GroupState::kGenerated) return;
  const bool scored = std::all_of(group.samples.begin(), group.samples.end(),
                                  [](const SampleSlot& slot) { return slot.score != nullptr; });
  if (!scored) return;
  groups_.Move(group, GroupState::kScored, now);
  if (options_.adaptive.has_value()) RememberOutcome(group);
  if (options_.replay.has_value()) Replay(group);
  if (Filter(group, now)) return;
  groups_.Move(group, GroupState::kReady, now);
  filtered_in_a_row_ = 0;
  Changed(Topic::kBatch);
  ApplyDisposition(group, now);
}

}  // namespace freshet
