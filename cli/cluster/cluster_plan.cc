#include "cli/cluster/cluster_plan.h"

#include <algorithm>
#include <set>

#include "base/backoff.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int kTiers = 3;

int TierOf(const std::string& role) {
  if (role == "redis") return 0;
  return role == "controller" ? 1 : 2;
}

bool Runs(const ProcessView& process) { return process.phase != Phase::kBackoff; }

// Kills processes that exceeded their time limit.
void PlanTimeouts(const PlanInput& input, std::vector<Action>& actions) {
  for (const ProcessView& process : input.processes) {
    if (process.killed) continue;
    const absl::Duration age = input.now - process.since;
    const absl::Duration to_start =
        process.id.role == "model" ? input.limits.model_start_timeout : input.limits.start_timeout;
    if (process.phase == Phase::kStarting && age > to_start) {
      actions.push_back({Action::Kind::kKill, process.id,
                         StrCat("not ready after ", absl::FormatDuration(to_start))});
    }
    if (process.phase == Phase::kDraining && age > input.limits.drain_timeout) {
      actions.push_back(
          {Action::Kind::kKill, process.id,
           StrCat("has not ended within ", absl::FormatDuration(input.limits.drain_timeout))});
    }
  }
}

void PlanStop(const PlanInput& input, std::vector<Action>& actions) {
  int highest = -1;
  for (const ProcessView& process : input.processes) {
    if (Runs(process)) highest = std::max(highest, TierOf(process.id.role));
  }
  for (const ProcessView& process : input.processes) {
    if (!Runs(process)) {
      actions.push_back({Action::Kind::kForget, process.id, "the cluster stops"});
    } else if (TierOf(process.id.role) == highest && process.phase != Phase::kDraining) {
      actions.push_back({Action::Kind::kDrain, process.id, "the cluster stops"});
    }
  }
}

ProcessId IdOf(const std::string& group, int index) {
  const size_t slash = group.find('/');
  ProcessId id;
  id.role = group.substr(0, slash);
  if (slash != std::string::npos) id.pool = group.substr(slash + 1);
  id.index = index;
  return id;
}

void PlanGroup(const PlanInput& input, const std::string& group, int wanted, bool may_start,
               std::vector<Action>& actions) {
  std::vector<const ProcessView*> members;  // members to keep, by index
  std::set<int> used;
  for (const ProcessView& process : input.processes) {
    if (process.id.Group() != group) continue;
    used.insert(process.id.index);
    if (process.phase != Phase::kDraining) members.push_back(&process);
  }
  std::sort(members.begin(), members.end(),
            [](const auto* a, const auto* b) { return a->id.index < b->id.index; });
  const auto keep = static_cast<size_t>(std::clamp(wanted, 0, input.limits.max_per_group));
  for (size_t i = members.size(); i > keep; --i) {
    const ProcessView& process = *members[i - 1];
    actions.push_back({Runs(process) ? Action::Kind::kDrain : Action::Kind::kForget, process.id,
                       StrCat(keep, " wanted")});
  }
  if (!may_start) return;
  for (size_t i = 0; i < std::min(keep, members.size()); ++i) {
    if (!Runs(*members[i]) && members[i]->retry_at <= input.now) {
      actions.push_back({Action::Kind::kStart, members[i]->id, "has died"});
    }
  }
  int index = 1;
  for (size_t count = members.size(); count < keep; ++count) {
    while (used.count(index) > 0) ++index;
    used.insert(index);
    actions.push_back({Action::Kind::kStart, IdOf(group, index), StrCat(keep, " wanted")});
  }
}

}  // namespace

std::string ProcessId::Name() const {
  if (role == "redis") return role;
  return StrCat(role, pool.empty() ? "" : "-", pool, "-", index);
}

std::string ProcessId::Group() const { return pool.empty() ? role : StrCat(role, "/", pool); }

std::vector<Action> PlanCluster(const PlanInput& input) {
  std::vector<Action> actions;
  PlanTimeouts(input, actions);
  if (input.stopping) {
    PlanStop(input, actions);
    return actions;
  }
  bool ready[kTiers] = {};
  for (const ProcessView& process : input.processes) {
    if (process.phase == Phase::kReady) ready[TierOf(process.id.role)] = true;
  }
  std::map<std::string, int> wanted = input.wanted;
  for (const ProcessView& process : input.processes) wanted.try_emplace(process.id.Group(), 0);
  for (const auto& [group, count] : wanted) {
    const int tier = TierOf(group.substr(0, group.find('/')));
    const bool may_start = (tier < 1 || ready[0]) && (tier < 2 || ready[1]);
    PlanGroup(input, group, count, may_start, actions);
  }
  return actions;
}

absl::Duration RestartDelay(int failures) {
  return BackoffDelay(std::max(failures, 1), absl::Milliseconds(200), absl::Seconds(10));
}

}  // namespace freshet
