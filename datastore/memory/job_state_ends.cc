#include <algorithm>
#include <utility>

#include "base/str_cat.h"
#include "datastore/memory/job_state.h"

namespace freshet {
namespace {

constexpr size_t kMaxReasonBytes = 300;

GroupState StateOf(LedgerEvent event) {
  switch (event) {
    case LedgerEvent::kFiltered:
      return GroupState::kFiltered;
    case LedgerEvent::kDropped:
      return GroupState::kDropped;
    default:
      return GroupState::kDead;
  }
}

std::string ReasonText(const std::string& label, const std::string& detail) {
  std::string reason = detail.empty() ? label : StrCat(label, ": ", detail);
  if (reason.size() > kMaxReasonBytes) reason.resize(kMaxReasonBytes);
  return reason;
}

}  // namespace

int64_t JobState::Sweep(absl::Time now) {
  const int64_t before = counters_.leases_expired;
  ExpireLeases(now);
  ApplyDisposition(now);
  return counters_.leases_expired - before;
}

absl::StatusOr<int64_t> JobState::RevokeWorker(const std::string& worker, absl::Time now) {
  if (worker.empty()) return InvalidArgument("worker: empty: no worker to revoke");
  ExpireLeases(now);
  if (revoked_.insert(worker).second) {
    revoked_in_order_.push_back(worker);
    if (static_cast<int64_t>(revoked_in_order_.size()) > kMaxRevokedWorkers) {
      revoked_.erase(revoked_in_order_.front());
      revoked_in_order_.pop_front();
    }
  }
  engines_.erase(worker);
  row_answers_.erase(worker);
  int64_t returned = 0;
  const std::vector<int64_t> running(groups_.running_ordinals().begin(),
                                     groups_.running_ordinals().end());
  for (const int64_t ordinal : running) {
    Group& group = groups_.Get(ordinal);
    if (group.worker != worker) continue;
    ++returned;
    EndLease(group, LeaseEnd::kWorkerLost, StrCat("worker ", worker, " was lost"), now);
  }
  for (const int64_t token : rows_.HeldBy(worker)) {
    if (rows_.Find(token) == nullptr) continue;  // its group died with an earlier row
    ++returned;
    EndHeldRow(token, RowEnd::kWorkerLost, StrCat("worker ", worker, " was lost"), now);
  }
  counters_.leases_expired += returned;
  return returned;
}

absl::Status JobState::CheckWorker(const std::string& worker) const {
  if (!revoked_.contains(worker)) return absl::OkStatus();
  return FailedPrecondition("worker ", worker, " is revoked: it must register again");
}

void JobState::ExpireLeases(absl::Time now) {
  if (now < next_expiry_) return;
  next_expiry_ = absl::InfiniteFuture();
  std::vector<int64_t> expired;
  for (const int64_t ordinal : groups_.running_ordinals()) {
    if (groups_.Get(ordinal).expires <= now) expired.push_back(ordinal);
  }
  for (const int64_t ordinal : expired) {
    ++counters_.leases_expired;
    Group& group = groups_.Get(ordinal);
    EndLease(group, LeaseEnd::kExpired, StrCat("lease of ", group.worker, " expired"), now);
  }
  for (const int64_t token : rows_.Expired(now)) {
    ++counters_.leases_expired;
    EndHeldRow(token, RowEnd::kExpired, "", now);
  }
  for (const int64_t ordinal : groups_.running_ordinals()) {
    next_expiry_ = std::min(next_expiry_, groups_.Get(ordinal).expires);
  }
  next_expiry_ = std::min(next_expiry_, rows_.NextExpiry());
}

int64_t JobState::CountLoss(const Group& group) {
  // Leases that a worker took before it was lost belong to the same loss.
  if (group.worker == lost_worker_ && group.token <= lost_token_) return losses_;
  lost_worker_ = group.worker;
  lost_token_ = last_token_;
  return ++losses_;
}

void JobState::EndLease(Group& group, LeaseEnd end, const std::string& reason, absl::Time now) {
  const bool lost = end == LeaseEnd::kExpired || end == LeaseEnd::kWorkerLost;
  const LeaseEndDecision decision = DecideLeaseEnd(
      end, group.put_token == group.token, lost ? CountLoss(group) : 0, now, group.leases,
      {options_.max_lease_failures, options_.max_hand_backs, options_.lease_ttl});
  group.leases = decision.history;
  if (decision.dead.has_value()) {
    return EndGroup(group, LedgerEvent::kDead, Name(*decision.dead),
                    StrCat(decision.count, " times: ", reason), now);
  }
  if (!group.HasTokens()) {
    if (decision.behind) {
      group.place = QueuePlace(high_water_, group.ordinal, group.leases.hand_backs,
                               options_.staleness.max_in_flight);
    }
    const bool told = end == LeaseEnd::kFailed || end == LeaseEnd::kHandedBack;
    return EndAttempt(group, Name(end), told ? reason : "", now);
  }
  groups_.Move(group, GroupState::kRequeued, now, /*kept=*/true);
  Changed(Topic::kAdmission);
}

void JobState::EndAttempt(Group& group, const std::string& label, const std::string& detail,
                          absl::Time now) {
  WriteEndRows(group, LedgerEvent::kRequeued, label, detail);
  ForgetTokens(group);
  ++group.attempt;
  group.samples.assign(static_cast<size_t>(options_.group_size), SampleSlot{});
  group.min_version = group.max_version = 0;
  groups_.Move(group, GroupState::kRequeued, now);
  Changed(Topic::kAdmission);
  Changed(Topic::kBatch);
  Changed(Topic::kSpace);
}

void JobState::EndGroup(Group& group, LedgerEvent event, const std::string& label,
                        const std::string& detail, absl::Time now) {
  WriteEndRows(group, event, label, detail);
  ForgetTokens(group);
  if (event == LedgerEvent::kDead) {
    dead_letters_.push_front({now, group.ordinal, group.attempt, ReasonText(label, detail)});
    if (std::ssize(dead_letters_) > kMaxDeadLetters) dead_letters_.pop_back();
  }
  groups_.Move(group, StateOf(event), now);
  groups_.Erase(group.ordinal);
  was_full_ = false;
  Changed(Topic::kAdmission);
  Changed(Topic::kBatch);
  Changed(Topic::kSpace);
}

void JobState::ForgetTokens(Group& group) {
  rows_.Remove(group);
  for (const int64_t token : group.attempt_tokens) group_tokens_.erase(token);
  group.attempt_tokens.clear();
  group.token = 0;
}

void JobState::ApplyDisposition(absl::Time now) {
  const std::vector<int64_t> ordinals(groups_.outstanding_ordinals().begin(),
                                      groups_.outstanding_ordinals().end());
  for (const int64_t ordinal : ordinals) ApplyDisposition(groups_.Get(ordinal), now);
}

void JobState::ApplyDisposition(Group& group, absl::Time now) {
  if (group.state == GroupState::kClaimed) return;
  const DispositionDecision decision = DecideDisposition(
      options_.staleness, steps_.version(), group.Age(), group.requeues, options_.max_requeues);
  switch (decision.verdict) {
    case Verdict::kKeep:
      return;
    case Verdict::kDrop:
      return EndGroup(group, LedgerEvent::kDropped, decision.reason, "", now);
    case Verdict::kDead:
      return EndGroup(group, LedgerEvent::kDead, decision.reason, "", now);
    case Verdict::kRequeue:
      ++group.requeues;
      return EndAttempt(group, decision.reason, "", now);
  }
}

LedgerRow JobState::SampleRow(const Group& group, int32_t index, int64_t step,
                              const LossWindow& window) {
  LedgerRow row;
  row.epoch = epoch_;
  row.lineage = lineages_.current();
  row.step = step;
  row.train_version = step - 1;
  const SampleKey key = KeyOf(group, index);
  const SampleSlot& slot = group.samples[static_cast<size_t>(index)];
  row.uid = SampleUid(options_.job, key);
  row.prompt = group.ordinal;
  row.attempt = group.attempt;
  row.sample = key.index;
  row.replay_of = slot.replay_of;
  row.loss_tokens = window.loss_tokens;
  row.masked_tokens = window.masked_tokens;
  row.spans = slot.Tokens().spans;
  row.segments = slot.Tokens().segments;
  row.min_version = window.min_version;
  row.max_version = window.max_version;
  return row;
}

void JobState::WriteEndRows(const Group& group, LedgerEvent event, const std::string& label,
                            const std::string& detail) {
  const std::string reason = StrCat(freshet::Name(event), "(", label, ")");
  ++ended_by_reason_[reason];
  if (group.skipped > 0) skipped_by_reason_[reason] += group.skipped;
  const bool any = group.HasTokens();
  for (size_t i = 0; i < group.samples.size(); ++i) {
    const Response& tokens = group.samples[i].Tokens();
    if (tokens.response_ids.empty() && (any || i > 0)) continue;
    WriteEndRow(group, static_cast<int32_t>(i), event, ReasonText(label, detail));
  }
}

void JobState::WriteEndRow(const Group& group, int32_t index, LedgerEvent event,
                           const std::string& reason) {
  const SampleSlot& slot = group.samples[static_cast<size_t>(index)];
  const LossWindow window = WindowOf(slot, steps_.version());
  LedgerRow row = SampleRow(group, index, steps_.version() + 1, window);
  row.event = event;
  row.reason = reason;
  ledger_.Append(std::move(row));
  const Response& tokens = slot.Tokens();
  if (tokens.response_ids.empty()) return;
  ++counters_.discarded_samples;
  counters_.discarded_tokens += static_cast<int64_t>(tokens.response_ids.size());
}

}  // namespace freshet
