#include "datastore/memory/group_table.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace freshet {
namespace {

using S = GroupState;

size_t At(GroupState state) { return static_cast<size_t>(state); }

bool Legal(GroupState from, GroupState to) {
  const bool ends = to == S::kDropped || to == S::kDead;
  switch (from) {
    case S::kQueued:
      return to == S::kLeased;
    case S::kRequeued:
      return to == S::kLeased || to == S::kRequeued || ends;
    case S::kLeased:
      return to == S::kGenerated || to == S::kRequeued || ends;
    case S::kGenerated:
      return to == S::kScored || to == S::kRequeued || ends;
    case S::kScored:
      return to == S::kReady || to == S::kFiltered || to == S::kRequeued || ends;
    case S::kReady:
      return to == S::kClaimed || to == S::kRequeued || ends;
    case S::kClaimed:
      return to == S::kTrained || to == S::kReady;
    case S::kTrained:
      return to == S::kDurable;
    case S::kDurable:
    case S::kFiltered:
    case S::kDropped:
    case S::kDead:
      return false;
  }
  return false;
}

bool IsOutstanding(const Group& group) {
  switch (group.state) {
    case S::kLeased:
    case S::kGenerated:
    case S::kScored:
    case S::kReady:
    case S::kClaimed:
      return true;
    case S::kRequeued:
      return group.kept;
    default:
      return false;
  }
}

}  // namespace

int32_t Group::NumFinished() const {
  int32_t n = 0;
  for (const SampleSlot& slot : samples) n += slot.response != nullptr ? 1 : 0;
  return n;
}

bool Group::HasTokens() const {
  for (const SampleSlot& slot : samples) {
    if (!slot.Tokens().response_ids.empty()) return true;
  }
  return false;
}

int64_t Group::ContinueVersion() const {
  int64_t version = min_version;
  for (const SampleSlot& slot : samples) {
    if (!slot.partial.spans.empty()) {
      version = std::max(version, slot.partial.spans.back().policy.version);
    }
  }
  return version;
}

GroupAge Group::Age() const {
  return {ordinal, min_version, max_version, state == GroupState::kReady};
}

Group& GroupTable::Add(Prompt prompt, absl::Time now) {
  const int64_t ordinal = prompt.ordinal;
  Group& group = groups_[ordinal];
  group.ordinal = group.place = ordinal;
  group.attempt = prompt.first_attempt;
  group.prompt = std::make_shared<const Prompt>(std::move(prompt));
  group.since = now;
  group.samples.resize(static_cast<size_t>(group_size_));
  ++counts_[At(S::kQueued)];
  ++transitions_[At(S::kQueued)];
  Index(group);
  return group;
}

Group* GroupTable::Find(int64_t ordinal) {
  const auto it = groups_.find(ordinal);
  return it == groups_.end() ? nullptr : &it->second;
}

Group& GroupTable::Get(int64_t ordinal) {
  Group* group = Find(ordinal);
  FRESHET_CHECK(group != nullptr);
  return *group;
}

void GroupTable::Move(Group& group, GroupState to, absl::Time now, bool kept) {
  FRESHET_CHECK(Legal(group.state, to));
  Unindex(group);
  --counts_[At(group.state)];
  skipped_[At(group.state)] -= group.skipped;
  times_[At(group.state)] += now - group.since;
  group.state = to;
  group.kept = kept;
  group.since = now;
  ++counts_[At(to)];
  group.skipped = group_size_ - group.size();
  skipped_[At(to)] += group.skipped;
  ++transitions_[At(to)];
  Index(group);
}

void GroupTable::Erase(int64_t ordinal) {
  const auto it = groups_.find(ordinal);
  if (it == groups_.end()) return;
  Unindex(it->second);
  groups_.erase(it);
}

void GroupTable::Describe(StoreStats& stats) const {
  for (int i = 0; i < kNumGroupStates; ++i) {
    stats.groups[i] = counts_[i];
    stats.skipped[i] = skipped_[i];
    stats.transitions[i] = transitions_[i];
    stats.time_in_state[i] = times_[i];
  }
  stats.outstanding = outstanding();
  stats.running = running();
  stats.queued_prompts = static_cast<int64_t>(queue_.size());
}

void GroupTable::Index(const Group& group) {
  if (IsOutstanding(group)) outstanding_.insert(group.ordinal);
  if (group.state == S::kLeased) running_.insert(group.ordinal);
  if (group.state == S::kRequeued && group.kept) kept_.insert(group.ordinal);
  if (group.state == S::kQueued || (group.state == S::kRequeued && !group.kept)) {
    queue_.emplace(group.place, group.ordinal);
  }
}

void GroupTable::Unindex(const Group& group) {
  outstanding_.erase(group.ordinal);
  running_.erase(group.ordinal);
  kept_.erase(group.ordinal);
  queue_.erase({group.place, group.ordinal});
}

}  // namespace freshet
