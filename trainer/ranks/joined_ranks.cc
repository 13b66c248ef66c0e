#include "trainer/ranks/joined_ranks.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "base/backoff.h"
#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr absl::Duration kFirstPause = absl::Seconds(10);
constexpr absl::Duration kMostPause = absl::Minutes(10);
constexpr absl::Duration kForgotten = absl::Minutes(10);  // a loss

}  // namespace

int64_t JoinedRanks::Add(int number, UniqueFd socket) {
  const MutexLock lock(mu_);
  if (waiting_.contains(number)) {
    FRESHET_LOG(Warning) << "event=rank_replaced rank=" << number
                         << " reason=" << LogQuoted("another process with this number has joined");
  }
  waiting_[number] = Waiting{++ids_, std::move(socket)};
  changed_.NotifyAll();
  return ids_;
}

void JoinedRanks::Remove(int number, int64_t id) {
  const MutexLock lock(mu_);
  const auto found = waiting_.find(number);
  if (found != waiting_.end() && found->second.id == id) waiting_.erase(found);
}

void JoinedRanks::NoteLoss(int number) {
  const MutexLock lock(mu_);
  const absl::Time now = clock_.Now();
  Losses& losses = losses_[number];
  if (now - losses.last > kForgotten) losses.count = 0;
  losses.last = now;
  if (++losses.count > 1) {
    losses.usable = now + BackoffDelay(losses.count - 1, kFirstPause, kMostPause);
  }
}

void JoinedRanks::Stop() {
  const MutexLock lock(mu_);
  stopped_ = true;
  changed_.NotifyAll();
}

bool JoinedRanks::stopped() const {
  const MutexLock lock(mu_);
  return stopped_;
}

std::vector<int> JoinedRanks::ReadyNow() const {
  std::vector<int> ready;
  for (const auto& [number, waiting] : waiting_) {
    const auto losses = losses_.find(number);
    if (losses == losses_.end() || clock_.Now() >= losses->second.usable) ready.push_back(number);
  }
  return ready;
}

std::vector<int> JoinedRanks::Ready() const {
  const MutexLock lock(mu_);
  return ReadyNow();
}

absl::Duration JoinedRanks::UntilNextUsable() const {
  absl::Duration until = absl::InfiniteDuration();
  for (const auto& [number, waiting] : waiting_) {
    const auto losses = losses_.find(number);
    if (losses == losses_.end() || losses->second.usable <= clock_.Now()) continue;
    until = std::min(until, losses->second.usable - clock_.Now());
  }
  return until;
}

std::vector<JoinedRanks::Rank> JoinedRanks::Take(int most, absl::Duration timeout,
                                                 const std::stop_token& stop) {
  const std::stop_callback on_stop(stop, [this] {
    const MutexLock lock(mu_);
    changed_.NotifyAll();
  });
  const absl::Time deadline = absl::Now() + timeout;
  const MutexLock lock(mu_);
  std::vector<int> ready = ReadyNow();
  while (!stopped_ && !stop.stop_requested() && std::ssize(ready) < most) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(mu_, std::min(left, UntilNextUsable()));
    ready = ReadyNow();
  }
  std::vector<Rank> taken;
  for (const int number : ready) {
    if (stopped_ || stop.stop_requested() || std::ssize(taken) >= most) break;
    taken.push_back({number, std::move(waiting_[number].socket)});
    waiting_.erase(number);
  }
  return taken;
}

std::string JoinedRanks::Missing() const {
  const MutexLock lock(mu_);
  const std::vector<int> ready = ReadyNow();
  std::string missing;
  for (int number = 1; number < ranks_; ++number) {
    if (std::ranges::find(ready, number) != ready.end()) continue;
    missing += StrCat(missing.empty() ? "" : ", ", number);
  }
  return missing;
}

}  // namespace freshet
