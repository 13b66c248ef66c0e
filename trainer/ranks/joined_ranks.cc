#include "trainer/ranks/joined_ranks.h"

#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "base/str_cat.h"

namespace freshet {

int64_t JoinedRanks::Add(int number, UniqueFd socket) {
  const MutexLock lock(mu_);
  waiting_[number] = Waiting{++ids_, std::move(socket)};
  changed_.NotifyAll();
  return ids_;
}

void JoinedRanks::Remove(int number, int64_t id) {
  const MutexLock lock(mu_);
  const auto found = waiting_.find(number);
  if (found != waiting_.end() && found->second.id == id) waiting_.erase(found);
}

int JoinedRanks::Ready() const {
  const MutexLock lock(mu_);
  return static_cast<int>(waiting_.size());
}

std::vector<JoinedRanks::Rank> JoinedRanks::Take(int most, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const MutexLock lock(mu_);
  while (std::ssize(waiting_) < most) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(mu_, left);
  }
  std::vector<Rank> taken;
  while (!waiting_.empty() && std::ssize(taken) < most) {
    auto first = waiting_.begin();
    taken.push_back({first->first, std::move(first->second.socket)});
    waiting_.erase(first);
  }
  return taken;
}

std::string JoinedRanks::Missing() const {
  const MutexLock lock(mu_);
  std::string missing;
  for (int number = 1; number < ranks_; ++number) {
    if (!waiting_.contains(number)) missing += StrCat(missing.empty() ? "" : ", ", number);
  }
  return missing;
}

}  // namespace freshet
