#include "datastore/memory/step_journal.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace freshet {

StepJournal::StepJournal(int64_t version, std::string digest)
    : version_(version), newest_durable_(version) {
  digests_[version] = std::move(digest);
}

void StepJournal::Append(CommittedStep step) {
  FRESHET_CHECK(step.step == version_ + 1);
  version_ = step.step;
  digests_[step.step] = step.digest;
  steps_[step.step] = std::move(step);
}

const CommittedStep* StepJournal::Find(int64_t step) const {
  const auto it = steps_.find(step);
  return it == steps_.end() ? nullptr : &it->second;
}

void StepJournal::SetContentHash(int64_t step, const std::string& content_hash) {
  steps_.at(step).content_hash = content_hash;
}

std::optional<std::string> StepJournal::Digest(int64_t version) const {
  const auto it = digests_.find(version);
  if (it == digests_.end()) return std::nullopt;
  return it->second;
}

StepJournal::Durability StepJournal::durability(int64_t version) const {
  const auto it = durable_.find(version);
  return it == durable_.end() ? Durability::kNone : it->second;
}

void StepJournal::SetDurable(int64_t version, Durability durability) {
  Durability& entry = durable_[version];
  entry = std::max(entry, durability);
  newest_durable_ = std::max(newest_durable_, version);
}

std::vector<CommittedStep> StepJournal::Forget() {
  std::vector<CommittedStep> forgotten;
  if (durable_.size() < 2) return forgotten;
  const int64_t second = std::next(durable_.rbegin())->first;
  while (!steps_.empty() && steps_.begin()->first <= second) {
    forgotten.push_back(std::move(steps_.begin()->second));
    steps_.erase(steps_.begin());
  }
  durable_.erase(durable_.begin(), durable_.lower_bound(second));
  digests_.erase(digests_.begin(), digests_.lower_bound(second));
  return forgotten;
}

}  // namespace freshet
