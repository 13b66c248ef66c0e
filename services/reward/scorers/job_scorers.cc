#include "services/reward/scorers/job_scorers.h"

#include <utility>

#include "base/str_cat.h"

namespace freshet {

std::unique_ptr<JobScorers::Registration> JobScorers::Add(
    const std::string& job, absl::Duration timeout, std::shared_ptr<const CompositeScorer> scorer,
    int64_t parallel) {
  MutexLock lock(mu_);
  const int64_t id = ++last_id_;
  entries_[id] = {job, {StrCat("job ", job, " ", id), timeout, std::move(scorer), parallel}};
  return std::unique_ptr<Registration>(new Registration(*this, id));
}

std::optional<JobScorer> JobScorers::Find(const std::string& job) const {
  MutexLock lock(mu_);
  for (auto it = entries_.rbegin(); it != entries_.rend(); ++it) {
    if (it->second.job == job) return it->second.scorer;
  }
  return std::nullopt;
}

void JobScorers::Remove(int64_t id) {
  MutexLock lock(mu_);
  entries_.erase(id);
}

}  // namespace freshet
