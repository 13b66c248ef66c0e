#include "controller/cluster/leadership.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {
Leadership::~Leadership() { Stop(); }

void Leadership::Start(const std::string& address) {
  address_ = address;
  actor_ = std::jthread([this](std::stop_token stop) { Act(stop); });
  renewer_ = std::jthread([this](std::stop_token stop) { Renew(stop); });
}

void Leadership::Stop() {
  {
    MutexLock lock(mu_);
    if (std::exchange(stopped_, true)) return;
    changed_.NotifyAll();
  }
  actor_.request_stop();
  if (actor_.joinable()) actor_.join();
  renewer_.request_stop();
  {
    MutexLock lock(mu_);
    changed_.NotifyAll();
  }
  if (renewer_.joinable()) renewer_.join();
  GiveUp();
}

Leadership::View Leadership::Get() const {
  MutexLock lock(mu_);
  View view;
  view.leading = active_ != 0 && clock_.Now() < until_;
  view.token = active_;
  view.trouble = unreachable_;
  // A lease of this process, or of a dead process at the same address, is not a usable leader.
  if (!view.leading && (state_.held || state_.address == address_)) {
    if (state_.held && view.trouble.empty()) {
      view.trouble = not_begun_.empty() ? "this one is taking over"
                                        : StrCat("this one cannot take over yet: ", not_begun_);
    }
    return view;
  }
  view.leader = state_.leader;
  view.address = state_.address;
  return view;
}

void Leadership::WaitFor(absl::Duration timeout) {
  changed_.WaitFor(mu_, std::max(timeout, absl::Milliseconds(1)));
}

bool Leadership::Candidate() const {
  MutexLock lock(mu_);
  return !stopped_ && !ending_ && !MustGiveUp();
}

bool Leadership::MustGiveUp() const {
  return state_.held && (stopped_ || ending_ || state_.token == ended_);
}

// Tries once. A lease that cannot be released expires.
void Leadership::GiveUp() {
  int64_t token = 0;
  {
    MutexLock lock(mu_);
    if (!state_.held) return;
    token = state_.token;
    state_ = LeaseState{};
    until_ = absl::InfinitePast();
  }
  const absl::Status released = lease_.Release(options_.candidate, token);
  if (!released.ok()) {
    FRESHET_LOG(Warning) << "event=lease_not_released error=" << LogQuoted(Message(released));
  }
}

void Leadership::Ask(bool candidate) {
  const absl::Time asked = clock_.Now();
  absl::StatusOr<LeaseState> state =
      candidate ? lease_.TryAcquire(options_.candidate, address_, options_.ttl) : lease_.Look();
  if (callbacks_.on_asked) callbacks_.on_asked(state.status());
  MutexLock lock(mu_);
  if (state.ok()) {
    trouble_ = state->leader.empty() || state->held ? "" : StrCat(state->leader, " leads");
    unreachable_.clear();
    until_ = state->held ? asked + state->remaining : absl::InfinitePast();
    state_ = *std::move(state);
  } else {
    trouble_ = Message(state.status());
    if (unreachable_ != trouble_) {
      FRESHET_LOG(Warning) << "event=lease_unknown reason=" << LogQuoted(trouble_);
    }
    unreachable_ = trouble_;
  }
  changed_.NotifyAll();
}

void Leadership::Renew(std::stop_token stop) {
  while (!stop.stop_requested()) {
    const absl::Time next = absl::Now() + options_.renewal;
    // on_lost may take long; do not keep the lease meanwhile.
    const bool candidate = Candidate();
    if (!candidate) GiveUp();
    Ask(candidate);
    MutexLock lock(mu_);
    // Paced by real time, so that a stopped clock does not stop renewals.
    while (!stop.stop_requested() && absl::Now() < next && !MustGiveUp()) {
      WaitFor(next - absl::Now());
    }
  }
}

void Leadership::Act(std::stop_token stop) {
  absl::Time retry_at = absl::InfinitePast();
  while (true) {
    int64_t lost = 0;
    int64_t gained = 0;
    std::string why;
    {
      MutexLock lock(mu_);
      const absl::Time now = clock_.Now();
      const bool held = state_.held && now < until_ && !MustGiveUp();
      if (active_ != 0 && (!held || state_.token != active_)) {
        lost = std::exchange(active_, 0);
        ended_ = lost;
        ending_ = true;
        changed_.NotifyAll();
        why = stopped_ ? "it stops" : trouble_.empty() ? "its lease ended" : trouble_;
      } else if (active_ == 0 && held && now >= retry_at) {
        gained = state_.token;
      } else if (stop.stop_requested() || stopped_) {
        return;
      } else {
        const absl::Duration left = held ? until_ - now : options_.renewal;
        WaitFor(std::min(left, options_.renewal));
        continue;
      }
    }
    if (lost != 0) {
      FRESHET_LOG(Warning) << "event=lead leads=no token=" << lost << " reason=" << LogQuoted(why);
      callbacks_.on_lost(why);
      MutexLock lock(mu_);
      ending_ = false;
      changed_.NotifyAll();
      continue;
    }
    const absl::Status status = callbacks_.on_gained(gained);
    MutexLock lock(mu_);
    not_begun_ = Message(status);
    if (status.ok()) {
      active_ = gained;
      FRESHET_LOG(Info) << "event=lead leads=yes token=" << gained;
    } else {
      FRESHET_LOG(Warning) << "event=lead leads=not_yet token=" << gained
                           << " reason=" << LogQuoted(Message(status));
      retry_at = clock_.Now() + options_.renewal;
    }
  }
}

}  // namespace freshet
