#include "datastore/memory/row_table.h"

#include <algorithm>

#include "base/log.h"

namespace freshet {
namespace {

using Stage = RowProgress::Stage;

RowProgress& Progress(Group& group, int32_t index) {
  return group.samples[static_cast<size_t>(index)].row;
}

}  // namespace

void RowTable::Offer(Group& group, int32_t index) {
  RowProgress& progress = Progress(group, index);
  progress.stage = Stage::kPending;
  progress.key = {group.min_version, group.ordinal, index};
  pending_.insert(progress.key);
}

std::optional<RowKey> RowTable::Take(GroupTable& groups, int64_t token, const std::string& worker,
                                     absl::Time expires) {
  if (pending_.empty()) return std::nullopt;
  const RowKey key = *pending_.begin();
  pending_.erase(pending_.begin());
  const int64_t ordinal = std::get<1>(key);
  const int32_t index = std::get<2>(key);
  RowProgress& progress = Progress(groups.Get(ordinal), index);
  progress.stage = Stage::kLeased;
  progress.token = token;
  holds_[token] = {ordinal, index, worker, expires, false};
  live_.insert(token);
  return key;
}

RowHold* RowTable::Find(int64_t token) {
  const auto it = holds_.find(token);
  return it == holds_.end() ? nullptr : &it->second;
}

void RowTable::SetDone(Group& group, int64_t token) {
  RowHold* hold = Find(token);
  FRESHET_CHECK(hold != nullptr && !hold->done);
  hold->done = true;
  live_.erase(token);
  Progress(group, hold->index).stage = Stage::kDone;
}

void RowTable::Release(Group& group, int64_t token) {
  RowHold* hold = Find(token);
  FRESHET_CHECK(hold != nullptr && !hold->done);
  Progress(group, hold->index).stage = Stage::kBlocked;
  live_.erase(token);
  holds_.erase(token);
}

void RowTable::Remove(Group& group) {
  for (SampleSlot& slot : group.samples) {
    RowProgress& progress = slot.row;
    if (progress.stage == Stage::kPending) pending_.erase(progress.key);
    if (progress.stage == Stage::kLeased || progress.stage == Stage::kDone) {
      live_.erase(progress.token);
      holds_.erase(progress.token);
    }
    progress = {};
  }
}

std::vector<int64_t> RowTable::Expired(absl::Time now) const {
  std::vector<int64_t> expired;
  for (const int64_t token : live_) {
    if (holds_.at(token).expires <= now) expired.push_back(token);
  }
  return expired;
}

std::vector<int64_t> RowTable::HeldBy(const std::string& worker) const {
  std::vector<int64_t> held;
  for (const int64_t token : live_) {
    if (holds_.at(token).worker == worker) held.push_back(token);
  }
  return held;
}

absl::Time RowTable::NextExpiry() const {
  absl::Time earliest = absl::InfiniteFuture();
  for (const int64_t token : live_) earliest = std::min(earliest, holds_.at(token).expires);
  return earliest;
}

}  // namespace freshet
