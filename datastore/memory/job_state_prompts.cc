#include <algorithm>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/memory/job_state.h"
#include "datastore/response_check.h"

namespace freshet {
namespace {

// The cursor lists every ordinal of a gap.
constexpr int64_t kMaxOrdinalLeap = int64_t{1} << 20;
// Workers remembered for Explain().
constexpr size_t kMaxEngineNotes = 1024;

absl::Status CheckPrompt(const Prompt& prompt, int64_t previous, int64_t high_water) {
  if (prompt.ordinal < 0 || prompt.ordinal <= previous) {
    return InvalidArgument("prompt ordinal ", prompt.ordinal, " does not grow after ", previous);
  }
  // The first ordinal of a job is arbitrary.
  const int64_t last = std::max(previous, high_water);
  if (last >= 0 && prompt.ordinal - last > kMaxOrdinalLeap) {
    return InvalidArgument("prompt ordinal ", prompt.ordinal, " leaps from ", last, ": by at most ",
                           kMaxOrdinalLeap);
  }
  if (prompt.first_attempt < 0) {
    return InvalidArgument("prompt ", prompt.ordinal, ": first_attempt ", prompt.first_attempt,
                           " is negative");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PutPromptsReply> JobState::PutPrompts(const std::vector<Prompt>& prompts,
                                                     absl::Time now) {
  int64_t previous = -1;
  for (const Prompt& prompt : prompts) {
    FRESHET_RETURN_IF_ERROR(CheckPrompt(prompt, previous, high_water_));
    previous = prompt.ordinal;
  }
  PutPromptsReply reply;
  for (const Prompt& prompt : prompts) {
    const bool ended =
        std::binary_search(origin_above_.begin(), origin_above_.end(), prompt.ordinal);
    if (prompt.ordinal > high_water_ && !ended) {
      if (static_cast<int64_t>(groups_.queue().size()) >= options_.max_queued_prompts) break;
      // Prompts behind already queued ones do not change any answer.
      if (groups_.queue().empty()) Changed(Topic::kAdmission);
      groups_.Add(prompt, now);
    }
    high_water_ = std::max(high_water_, prompt.ordinal);
    ++reply.accepted;
  }
  reply.high_water = high_water_;
  reply.full = static_cast<int64_t>(groups_.queue().size()) >= options_.max_queued_prompts;
  return reply;
}

AdmissionDecision JobState::Admission(const PolicyVersion& engine,
                                      std::optional<int64_t> kept_version) const {
  AdmissionState state;
  state.committed = Committed();
  state.engine = engine;
  state.outstanding = groups_.outstanding();
  state.running = groups_.running();
  state.last_step = options_.last_step;
  state.kept_version = kept_version;
  return DecideAdmission(options_.staleness, state);
}

int64_t JobState::CapacityUsed() const {
  return groups_.outstanding() + groups_.Count(GroupState::kTrained);
}

bool JobState::StoreFull() const { return CapacityUsed() >= options_.capacity_groups; }

GroupLease JobState::Lease(Group& group, const LeaseRequest& request, absl::Time now) {
  if (!group.kept) {
    group.min_version = request.engine.version;
    if (options_.adaptive.has_value()) Adapt(group);
  }
  groups_.Move(group, GroupState::kLeased, now);
  group.token = NewToken();
  group.worker = request.worker;
  group.expires = now + options_.lease_ttl;
  group.attempt_tokens.push_back(group.token);
  group_tokens_[group.token] = group.ordinal;
  next_expiry_ = std::min(next_expiry_, group.expires);
  GroupLease lease;
  lease.token = group.token;
  lease.ordinal = group.ordinal;
  lease.attempt = group.attempt;
  lease.expires = group.expires;
  lease.prompt = *group.prompt;
  lease.max_new_tokens = group.max_new_tokens;
  for (size_t i = 0; i < group.samples.size(); ++i) {
    if (group.samples[i].response != nullptr) continue;
    lease.missing.push_back(static_cast<int32_t>(i));
    lease.partials.push_back(group.samples[i].partial);
  }
  return lease;
}

// Leases requeued groups with kept tokens. Returns why it stopped, or "" if none are left.
std::string JobState::LeaseKept(const LeaseRequest& request, absl::Time now, LeaseReply& reply) {
  std::vector<std::pair<int64_t, int64_t>> kept;  // (min version, ordinal)
  for (const int64_t ordinal : groups_.kept_ordinals()) {
    kept.emplace_back(groups_.Get(ordinal).min_version, ordinal);
  }
  std::sort(kept.begin(), kept.end());
  std::string refusal;
  for (const auto& [min_version, ordinal] : kept) {
    if (static_cast<int64_t>(reply.leases.size()) >= request.max_groups) break;
    Group& group = groups_.Get(ordinal);
    const AdmissionDecision decision = Admission(request.engine, group.ContinueVersion());
    if (!decision.admit) {
      if (refusal.empty()) refusal = decision.reason;
      continue;
    }
    reply.leases.push_back(Lease(group, request, now));
  }
  return refusal;
}

// Leases prompts in queue order. Returns why it stopped.
std::string JobState::LeaseQueued(const LeaseRequest& request, absl::Time now, LeaseReply& reply) {
  while (static_cast<int64_t>(reply.leases.size()) < request.max_groups) {
    const AdmissionDecision decision = Admission(request.engine, std::nullopt);
    if (!decision.admit) return decision.reason;
    if (StoreFull()) {
      if (!was_full_) {
        Changed(Topic::kBatch);
        Changed(Topic::kSpace);
      }
      was_full_ = true;
      return StrCat("store full: ", groups_.outstanding(), " groups outstanding and ",
                    groups_.Count(GroupState::kTrained), " trained but not durable, of ",
                    options_.capacity_groups, ": a checkpoint must become durable");
    }
    if (ledger_.backlog() >= options_.max_ledger_rows) {
      return StrCat("store full: ", ledger_.backlog(), " ledger rows are not drained");
    }
    if (groups_.queue().empty()) return "prompt queue empty";
    Group& group = groups_.Get(groups_.queue().begin()->second);
    reply.leases.push_back(Lease(group, request, now));
    Changed(Topic::kPrompts);
  }
  return StrCat("request served: ", request.max_groups, " groups asked for");
}

absl::StatusOr<LeaseReply> JobState::LeasePrompts(const LeaseRequest& request, absl::Time now) {
  if (request.worker.empty()) return InvalidArgument("worker: empty: a lease needs a holder");
  if (request.max_groups < 0 || request.engine.version < 0 || request.engine.lineage < 0) {
    return InvalidArgument("lease request of ", request.worker, ": max_groups ", request.max_groups,
                           ", lineage ", request.engine.lineage, ", version ",
                           request.engine.version, ": none may be negative");
  }
  FRESHET_RETURN_IF_ERROR(CheckWorker(request.worker));
  ExpireLeases(now);
  if (const LeaseReply* known = replay_.Find(request.worker, request.request_id)) return *known;
  LeaseReply reply;
  reply.committed = Committed();
  if (!paused_.empty()) {
    reply.reason = StrCat("job paused: ", paused_);
  } else {
    const std::string kept_refusal = LeaseKept(request, now, reply);
    reply.reason = LeaseQueued(request, now, reply);
    if (!kept_refusal.empty()) reply.reason += StrCat("; ", kept_refusal);
  }
  if (engines_.size() < kMaxEngineNotes || engines_.contains(request.worker)) {
    engines_[request.worker] = {request.engine, reply.leases.empty() ? reply.reason : ""};
  }
  // Empty replies have no effect and need no replay.
  if (!reply.leases.empty() && !request.request_id.empty()) {
    replay_.Remember(request.worker, request.request_id, reply);
  }
  return reply;
}

ResponseBounds JobState::Bounds(const Group& group, bool needs_loss) const {
  return {group.min_version, lineages_.root(), Committed(), needs_loss};
}

Group* JobState::LiveLease(int64_t token) {
  const auto it = group_tokens_.find(token);
  if (it == group_tokens_.end()) return nullptr;
  Group& group = groups_.Get(it->second);
  return group.state == GroupState::kLeased && group.token == token ? &group : nullptr;
}

absl::StatusOr<std::vector<int64_t>> JobState::RenewLeases(const std::string& worker,
                                                           const std::vector<int64_t>& tokens,
                                                           absl::Time now) {
  FRESHET_RETURN_IF_ERROR(CheckWorker(worker));
  ExpireLeases(now);
  std::vector<int64_t> dead;
  for (const int64_t token : tokens) {
    Group* group = LiveLease(token);
    RowHold* hold = rows_.Find(token);
    if (group != nullptr && group->worker == worker) {
      group->expires = now + options_.lease_ttl;
    } else if (hold != nullptr && !hold->done && hold->worker == worker) {
      hold->expires = now + options_.lease_ttl;
    } else {
      dead.push_back(token);
    }
  }
  return dead;
}

absl::Status JobState::ReturnLease(int64_t token, const std::vector<int32_t>& indices,
                                   const std::vector<Response>& partials, absl::Time now) {
  ExpireLeases(now);
  Group* group = LiveLease(token);
  if (group == nullptr) return FailedPrecondition("lease ", token, " is not live");
  if (indices.size() != partials.size()) {
    return InvalidArgument("partials: ", partials.size(), " for ", indices.size(), " indices");
  }
  std::vector<bool> seen(group->samples.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    const size_t index = static_cast<size_t>(indices[i]);
    if (indices[i] < 0 || index >= seen.size() || seen[index] ||
        group->samples[index].response != nullptr) {
      return InvalidArgument("indices: sample ", indices[i], " of group ", group->ordinal,
                             " is out of range, repeated or finished");
    }
    seen[index] = true;
    if (partials[i].response_ids.empty()) continue;
    FRESHET_RETURN_IF_ERROR(CheckResponse(partials[i], Bounds(*group, /*needs_loss=*/false)));
  }
  const bool discard = options_.staleness.max == 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    group->samples[static_cast<size_t>(indices[i])].partial = discard ? Response{} : partials[i];
  }
  EndLease(*group, LeaseEnd::kReturned, "", now);
  return absl::OkStatus();
}

absl::Status JobState::GiveUpLease(int64_t token, LeaseEnd end, const std::string& reason,
                                   absl::Time now) {
  ExpireLeases(now);
  Group* group = LiveLease(token);
  if (group == nullptr) return FailedPrecondition("lease ", token, " is not live");
  EndLease(*group, end, reason, now);
  return absl::OkStatus();
}

absl::Status JobState::PutSample(const SamplePut& sample, absl::Time now) {
  FRESHET_RETURN_IF_ERROR(CheckSamplePut(sample, options_.group_size));
  ExpireLeases(now);
  const auto index = static_cast<size_t>(sample.index);
  const auto it = group_tokens_.find(sample.token);
  if (it != group_tokens_.end()) {
    const Group& leased = groups_.Get(it->second);
    FRESHET_RETURN_IF_ERROR(CheckSamplePut(sample, leased.size()));
    const SampleSlot& slot = leased.samples[index];
    if (slot.response != nullptr && slot.token == sample.token) {
      ++counters_.duplicate_puts;
      return absl::OkStatus();
    }
  }
  Group* group = LiveLease(sample.token);
  if (group == nullptr || group->samples[index].response != nullptr) {
    ++counters_.fenced_puts;
    return FailedPrecondition("lease ", sample.token, " is not live: sample ", sample.index,
                              " is refused");
  }
  FRESHET_RETURN_IF_ERROR(CheckResponse(*sample.response, Bounds(*group, /*needs_loss=*/true)));
  if (sample.score != nullptr) FRESHET_RETURN_IF_ERROR(CheckScore(sample.score.get()));
  SampleSlot& slot = group->samples[index];
  slot.response = sample.response;
  slot.token = group->put_token = sample.token;
  slot.partial = {};
  ++counters_.samples_put;
  slot.score = sample.score;
  if (!options_.score_whole_groups) OfferRow(*group, sample.index);
  if (group->NumFinished() == group->size()) CompleteGeneration(*group, now);
  return absl::OkStatus();
}

void JobState::CompleteGeneration(Group& group, absl::Time now) {
  // The versions are now known from the tokens themselves.
  int64_t oldest = std::numeric_limits<int64_t>::max();
  int64_t newest = 0;
  StalenessOptions unmasked = options_.staleness;
  unmasked.disposition = Disposition::kWait;
  for (const SampleSlot& slot : group.samples) {
    const LossWindow window = ComputeLossWindow(unmasked, steps_.version(), *slot.response);
    if (window.loss_tokens > 0) {
      oldest = std::min(oldest, window.min_version);
      newest = std::max(newest, window.max_version);
      continue;
    }
    for (const Span& span : slot.response->spans) {
      oldest = std::min(oldest, span.policy.version);
      newest = std::max(newest, span.policy.version);
    }
  }
  group.min_version = oldest;
  group.max_version = newest;
  groups_.Move(group, GroupState::kGenerated, now);
  // The group stays outstanding, so admission changes only at the in-flight limit.
  if (groups_.running() == options_.staleness.max_in_flight - 1) Changed(Topic::kAdmission);
  Changed(Topic::kBatch);
  for (int32_t i = 0; i < group.size() && options_.score_whole_groups; ++i) {
    OfferRow(group, i);
  }
  Advance(group, now);
}

void JobState::OfferRow(Group& group, int32_t index) {
  if (group.samples[static_cast<size_t>(index)].score != nullptr) return;
  rows_.Offer(group, index);
  Changed(Topic::kRows);
}

}  // namespace freshet
