#ifndef FRESHET_SERVICES_REWARD_WORKER_HELD_LEASES_H_
#define FRESHET_SERVICES_REWARD_WORKER_HELD_LEASES_H_

#include <cstdint>
#include <map>
#include <stop_token>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// The leases of the rows that a worker has in hand, by token: renews them, and cancels the work on
// rows whose lease is lost. Thread-safe.
class HeldLeases {
 public:
  // `store` and `clock` must outlive this object. `worker`: the name that leased the rows.
  HeldLeases(RowQueue& store, std::string worker, const Clock& clock);

  // Adds a lease that was requested at `requested`. Its work is cancelled at once if `cancelled`.
  void Add(int64_t token, absl::Time requested, bool cancelled) ABSL_LOCKS_EXCLUDED(mu_);
  // Says when the work on a row is cancelled. The lease must be held.
  std::stop_token CancelToken(int64_t token) const ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(int64_t token) ABSL_LOCKS_EXCLUDED(mu_);
  int64_t size() const ABSL_LOCKS_EXCLUDED(mu_);

  // Renews all leases if a third of their duration has passed since the last renewal. If that
  // fails, the next call tries again.
  void RenewWhenDue() ABSL_LOCKS_EXCLUDED(mu_);
  // Cancels the work on all rows.
  void CancelAll() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  RowQueue& store_;
  const std::string worker_;
  const Clock& clock_;
  mutable Mutex mu_;
  std::map<int64_t, std::stop_source> leases_ ABSL_GUARDED_BY(mu_);
  absl::Time next_renewal_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  bool renewal_fails_ ABSL_GUARDED_BY(mu_) = false;  // the last call failed; logged once
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_WORKER_HELD_LEASES_H_
