#include "services/reward/worker/held_leases.h"

#include <iterator>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {

HeldLeases::HeldLeases(RowQueue& store, std::string worker, const Clock& clock)
    : store_(store), worker_(std::move(worker)), clock_(clock) {}

void HeldLeases::Add(int64_t token, absl::Time requested, bool cancelled) {
  MutexLock lock(mu_);
  if (leases_.empty()) next_renewal_ = requested + store_.lease_ttl() / 3;
  std::stop_source& cancel = leases_[token];
  if (cancelled) cancel.request_stop();
}

std::stop_token HeldLeases::CancelToken(int64_t token) const {
  MutexLock lock(mu_);
  return leases_.at(token).get_token();
}

void HeldLeases::Remove(int64_t token) {
  MutexLock lock(mu_);
  leases_.erase(token);
}

int64_t HeldLeases::size() const {
  MutexLock lock(mu_);
  return std::ssize(leases_);
}

void HeldLeases::RenewWhenDue() {
  const absl::Time now = clock_.Now();
  std::vector<int64_t> lost;
  {
    MutexLock lock(mu_);
    if (leases_.empty() || now < next_renewal_) return;
    for (const auto& [token, cancel] : leases_) lost.push_back(token);
  }
  const absl::StatusOr<std::vector<int64_t>> refused = store_.RenewLeases(worker_, lost);
  // The name is revoked, and with it all leases. On any other error the next check retries.
  if (refused.status().code() != absl::StatusCode::kFailedPrecondition) {
    if (!refused.ok()) {
      MutexLock lock(mu_);
      if (!std::exchange(renewal_fails_, true)) {
        FRESHET_LOG(Warning) << "event=renew_leases_failed error="
                             << LogQuoted(Message(refused.status()));
      }
      return;
    }
    lost = *refused;
  }
  std::vector<std::stop_source> ended;
  {
    MutexLock lock(mu_);
    renewal_fails_ = false;
    next_renewal_ = now + store_.lease_ttl() / 3;
    for (const int64_t token : lost) {
      const auto found = leases_.find(token);
      if (found != leases_.end()) ended.push_back(found->second);
    }
  }
  for (std::stop_source& cancel : ended) cancel.request_stop();
}

void HeldLeases::CancelAll() {
  std::vector<std::stop_source> all;
  {
    MutexLock lock(mu_);
    all.reserve(leases_.size());
    for (const auto& [token, cancel] : leases_) all.push_back(cancel);
  }
  for (std::stop_source& cancel : all) cancel.request_stop();
}

}  // namespace freshet
