#include "rollout/worker/lease_renewer.h"

namespace freshet {

LeaseRenewer::LeaseRenewer(TrajectoryStore& store, absl::Duration period, absl::Duration longest)
    : store_(store), period_(period), longest_(longest) {
  if (longest_ > absl::ZeroDuration()) thread_ = std::jthread([this] { Run(); });
}

LeaseRenewer::~LeaseRenewer() {
  const MutexLock lock(mu_);
  ended_ = true;
  wake_.NotifyAll();
}

// The thread is not woken: most calls end before it looks.
void LeaseRenewer::Begin(Leases leases) {
  const MutexLock lock(mu_);
  leases_ = std::move(leases);
  ++call_;
}

void LeaseRenewer::End() {
  const MutexLock lock(mu_);
  leases_.reset();
}

void LeaseRenewer::Run() {
  for (std::optional<Leases> leases = Await(); leases.has_value(); leases = Await()) {
    store_.RenewLeases(leases->worker, leases->tokens).IgnoreError();
  }
}

std::optional<LeaseRenewer::Leases> LeaseRenewer::Await() {
  const MutexLock lock(mu_);
  while (true) {
    if (!ended_) wake_.WaitFor(mu_, period_);
    if (ended_) return std::nullopt;
    if (!leases_.has_value() || leases_->tokens.empty()) continue;
    if (call_ != seen_) {
      seen_ = call_;
      seen_for_ = absl::ZeroDuration();
      continue;
    }
    seen_for_ += period_;
    if (seen_for_ <= longest_) return leases_;
  }
}

}  // namespace freshet
