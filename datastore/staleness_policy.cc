#include "datastore/staleness_policy.h"

#include <algorithm>
#include <limits>

#include "base/str_cat.h"

namespace freshet {
namespace {

// Larger than any job needs; products of two such values fit in 64 bits.
constexpr int64_t kMaxOption = 1'000'000;

absl::Status CheckRange(const char* name, int64_t value, int64_t low) {
  if (value >= low && value <= kMaxOption) return absl::OkStatus();
  return InvalidArgument(name, ": ", value, " is out of range: use ", low, " to ", kMaxOption);
}

std::string Text(const PolicyVersion& policy) {
  return StrCat("(lineage ", policy.lineage, ", version ", policy.version, ")");
}

bool Older(const GroupAge& a, const GroupAge& b) {
  return a.min_version != b.min_version ? a.min_version < b.min_version : a.ordinal < b.ordinal;
}

bool WithinBound(const StalenessOptions& options, int64_t version, const GroupAge& group) {
  const bool mask = options.disposition == Disposition::kMask;
  return version - (mask ? group.max_version : group.min_version) <= options.max;
}

ConsumptionDecision TooFew(const StalenessOptions& options, int64_t version, int64_t num_ready,
                           const std::vector<GroupAge>& rest) {
  ConsumptionDecision decision;
  decision.reason = StrCat("step ", version + 1, " needs ", options.groups_per_step - num_ready,
                           " more groups: ", num_ready, " of ", options.groups_per_step,
                           " complete, ", rest.size(), " outstanding are not");
  if (!rest.empty()) {
    decision.waits_for = rest.front().ordinal;
    decision.reason += StrCat("; the oldest is group ", rest.front().ordinal, " (min version ",
                              rest.front().min_version, ")");
  }
  return decision;
}

// Checks the k * B condition on the groups that a claim would leave, oldest first. Returns the
// smallest k that fails, if any. One pass suffices: in sorted order, the n-th group (from 0) with
// min version V - eta + k violates the condition iff n >= k * B.
std::optional<int64_t> FirstBrokenK(const StalenessOptions& options, int64_t version,
                                    const std::vector<GroupAge>& rest) {
  for (size_t n = 0; n < rest.size(); ++n) {
    const int64_t k = std::max<int64_t>(0, rest[n].min_version - (version - options.max));
    if (k > options.max) break;
    if (static_cast<int64_t>(n) >= k * options.groups_per_step) return k;
  }
  return std::nullopt;
}

ConsumptionDecision Overtaken(const StalenessOptions& options, int64_t version, int64_t k,
                              const std::vector<GroupAge>& rest) {
  const int64_t horizon = version - options.max + k;
  const GroupAge* waited = nullptr;
  int64_t num_old = 0;
  for (const GroupAge& group : rest) {
    if (group.min_version > horizon) break;
    ++num_old;
    if (waited == nullptr && !group.ready) waited = &group;
  }
  if (waited == nullptr) waited = &rest.front();
  ConsumptionDecision decision;
  decision.waits_for = waited->ordinal;
  decision.reason = StrCat("step ", version + 1, " waits for group ", waited->ordinal,
                           " (min version ", waited->min_version, "): claiming without it leaves ",
                           num_old, " groups of version <= ", horizon, ", and ", k,
                           " more steps can take only ", k * options.groups_per_step);
  return decision;
}

}  // namespace

const char* Name(Disposition disposition) {
  switch (disposition) {
    case Disposition::kWait:
      return "wait";
    case Disposition::kDrop:
      return "drop";
    case Disposition::kRequeue:
      return "requeue";
    case Disposition::kMask:
      return "mask";
  }
  return "unknown";
}

absl::StatusOr<Disposition> ParseDisposition(std::string_view name) {
  for (const Disposition disposition :
       {Disposition::kWait, Disposition::kDrop, Disposition::kRequeue, Disposition::kMask}) {
    if (name == Name(disposition)) return disposition;
  }
  return InvalidArgument("disposition: '", name.substr(0, 40),
                         "' is unknown: use wait, drop, requeue or mask");
}

absl::Status StalenessOptions::Validate() const {
  absl::Status status = CheckRange("staleness.max", max, 0);
  if (status.ok()) status = CheckRange("groups_per_step", groups_per_step, 1);
  if (status.ok()) status = CheckRange("max_in_flight", max_in_flight, 1);
  return status;
}

AdmissionDecision DecideAdmission(const StalenessOptions& options, const AdmissionState& state) {
  const int64_t version = state.committed.version;
  const int64_t engine = state.engine.version;
  const int64_t lag = version - engine;
  if (state.engine.lineage != state.committed.lineage || lag < 0) {
    return {false, StrCat("engine at ", Text(state.engine), " is ",
                          state.engine < state.committed ? "of an older lineage than" : "ahead of",
                          " the committed ", Text(state.committed))};
  }
  if (state.running >= options.max_in_flight) {
    return {false, StrCat("in-flight limit: ", state.running, " groups running of at most ",
                          options.max_in_flight)};
  }
  if (state.kept_version.has_value()) {
    if (engine < *state.kept_version || lag > options.max) {
      return {false, StrCat("engine at version ", engine,
                            " cannot continue a group with tokens of version ", *state.kept_version,
                            " at committed version ", version)};
    }
    return {true, "requeued group with kept tokens continues"};
  }
  if (version * options.groups_per_step + state.outstanding >=
      state.last_step * options.groups_per_step) {
    return {false, StrCat("last step: ", version, " of ", state.last_step, " steps trained and ",
                          state.outstanding, " groups outstanding need no more groups")};
  }
  const int64_t share = std::max<int64_t>(0, options.max + 1 - lag) * options.groups_per_step;
  if (state.outstanding >= share) {
    return {false, StrCat("staleness bound: ", state.outstanding, " groups outstanding, engine at ",
                          "version ", engine, " may add up to ", share, " (eta ", options.max,
                          ", committed version ", version, ")")};
  }
  return {true, StrCat(state.outstanding, " groups outstanding of ", share)};
}

ConsumptionDecision DecideConsumption(const StalenessOptions& options, int64_t version,
                                      const std::vector<GroupAge>& outstanding) {
  std::vector<GroupAge> sorted = outstanding;
  std::sort(sorted.begin(), sorted.end(), Older);
  std::vector<int64_t> taken;
  std::vector<GroupAge> rest;        // unclaimed groups, oldest first
  std::vector<GroupAge> incomplete;  // those of `rest` that cannot be claimed
  for (const GroupAge& group : sorted) {
    const bool eligible = group.ready && WithinBound(options, version, group);
    if (eligible && static_cast<int64_t>(taken.size()) < options.groups_per_step) {
      taken.push_back(group.ordinal);
      continue;
    }
    rest.push_back(group);
    if (!eligible) incomplete.push_back(group);
  }
  const int64_t num_ready = static_cast<int64_t>(taken.size());
  if (num_ready < options.groups_per_step) return TooFew(options, version, num_ready, incomplete);
  if (options.disposition == Disposition::kWait) {
    const std::optional<int64_t> k = FirstBrokenK(options, version, rest);
    if (k.has_value()) return Overtaken(options, version, *k, rest);
  }
  ConsumptionDecision decision;
  decision.claim = true;
  decision.reason = StrCat("step ", version + 1, " takes ", num_ready, " groups");
  std::sort(taken.begin(), taken.end());
  decision.ordinals = std::move(taken);
  return decision;
}

DispositionDecision DecideDisposition(const StalenessOptions& options, int64_t version,
                                      const GroupAge& group, int64_t requeues,
                                      int64_t max_requeues) {
  switch (options.disposition) {
    case Disposition::kWait:
      return {};
    case Disposition::kMask:
      if (group.ready && !WithinBound(options, version, group)) {
        return {Verdict::kDrop, "fully_masked"};
      }
      return {};
    case Disposition::kDrop:
      if (!WithinBound(options, version, group)) return {Verdict::kDrop, "too_old"};
      return {};
    case Disposition::kRequeue:
      if (WithinBound(options, version, group)) return {};
      if (requeues >= max_requeues) return {Verdict::kDead, "too_slow"};
      return {Verdict::kRequeue, "too_old"};
  }
  return {};
}

const char* Name(LeaseEnd end) {
  switch (end) {
    case LeaseEnd::kReturned:
      return "returned";
    case LeaseEnd::kHandedBack:
      return "handed_back";
    case LeaseEnd::kFailed:
      return "lease_failed";
    case LeaseEnd::kExpired:
      return "lease_expired";
    case LeaseEnd::kWorkerLost:
      return "worker_lost";
  }
  return "unknown";
}

LeaseEndDecision DecideLeaseEnd(LeaseEnd end, bool delivered, int64_t loss, absl::Time now,
                                const LeaseHistory& history, const LeaseLimits& limits) {
  LeaseEndDecision decision;
  LeaseHistory& next = decision.history = history;
  if (delivered) {
    next.losses = next.hand_backs = 0;
    return decision;
  }
  const bool lost = end == LeaseEnd::kExpired || end == LeaseEnd::kWorkerLost;
  if (end == LeaseEnd::kReturned) return decision;
  if (end == LeaseEnd::kFailed) ++next.failures;
  if (lost) {
    next.losses = history.last_loss == loss - 1 ? history.losses + 1 : 1;
    next.last_loss = loss;
  }
  if (lost || end == LeaseEnd::kHandedBack) {
    if (history.hand_backs == 0 || now - history.counted_at >= limits.lease_ttl) {
      ++next.hand_backs;
      next.counted_at = now;
    }
    if (next.hand_backs >= limits.max_hand_backs) {
      decision.dead = LeaseEnd::kHandedBack;
      decision.count = next.hand_backs;
    }
  }
  if (end != LeaseEnd::kHandedBack && next.failures + next.losses >= limits.max_failures) {
    decision.dead = LeaseEnd::kFailed;
    decision.count = next.failures + next.losses;
  }
  decision.behind = end == LeaseEnd::kHandedBack && next.hand_backs > 1;
  return decision;
}

int64_t QueuePlace(int64_t high_water, int64_t ordinal, int64_t hand_backs, int64_t max_in_flight) {
  constexpr int64_t kBits = 6;
  const int64_t bit = (ordinal >> (hand_backs % kBits)) & 1;
  return high_water + 1 + bit * max_in_flight;
}

RowEndDecision DecideRowEnd(RowEnd end, RowCounts counts, int64_t max_failures) {
  bool failed = end == RowEnd::kFailed;
  if (end == RowEnd::kWorkerLost) {
    failed = ++counts.losses > max_failures;
  } else if (end != RowEnd::kExpired) {
    counts.losses = 0;
  }
  if (failed) ++counts.failures;
  return {counts, counts.failures >= max_failures};
}

LossWindow ComputeLossWindow(const StalenessOptions& options, int64_t version,
                             const Response& response) {
  LossWindow window;
  window.loss_mask = response.loss_mask;
  window.min_version = std::numeric_limits<int64_t>::max();
  window.max_version = std::numeric_limits<int64_t>::min();
  for (const Span& span : response.spans) {
    const bool masked =
        options.disposition == Disposition::kMask && version - span.policy.version > options.max;
    const int64_t tokens = CountLossTokens(response.loss_mask, span.begin, span.end);
    if (tokens == 0) continue;
    if (masked) {
      std::fill(window.loss_mask.begin() + span.begin, window.loss_mask.begin() + span.end, 0);
      window.masked_tokens += tokens;
      continue;
    }
    window.loss_tokens += tokens;
    window.min_version = std::min(window.min_version, span.policy.version);
    window.max_version = std::max(window.max_version, span.policy.version);
  }
  if (window.loss_tokens == 0) window.min_version = window.max_version = version;
  return window;
}

}  // namespace freshet
