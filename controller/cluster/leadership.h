#ifndef FRESHET_CONTROLLER_CLUSTER_LEADERSHIP_H_
#define FRESHET_CONTROLLER_CLUSTER_LEADERSHIP_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "datastore/leader_lease.h"

namespace freshet {

// Leader election of this process. One thread renews the lease; another begins and ends terms based
// on the last known state. If the datastore hangs, this process stops leading when its lease
// expires there: `remaining` is counted from before the request. While a term ends, the lease is
// already released: another controller may lead, and be reported here, before on_lost returns. No
// two terms share a token: a lease still held under the token of an ended term is released, too.
// Thread-safe.
class Leadership {
 public:
  struct Options {
    std::string candidate;  // unique per process run
    absl::Duration ttl = absl::Seconds(2);
    // Real time between two renewals; several must fit into one ttl.
    absl::Duration renewal = absl::Milliseconds(500);
  };
  struct Callbacks {
    // Called on one thread, one at a time. If on_gained fails, it is retried while the lease lasts.
    // on_lost follows only a successful on_gained.
    std::function<absl::Status(int64_t token)> on_gained;
    std::function<void(const std::string& why)> on_lost;
    // Result of each lease request; called on another thread. May be empty.
    std::function<void(const absl::Status&)> on_asked;
  };
  struct View {
    bool leading = false;
    int64_t token = 0;
    std::string leader;   // "" if no leader is known
    std::string address;  // of the leader; this process's own address only while `leading`
    std::string trouble;  // why no leader is known or the lease cannot be requested; may be ""
  };

  // `lease` and `clock` must outlive the object.
  Leadership(LeaderLease& lease, const Clock& clock, Options options, Callbacks callbacks)
      : lease_(lease),
        clock_(clock),
        options_(std::move(options)),
        callbacks_(std::move(callbacks)) {}
  // Calls Stop().
  ~Leadership();

  // `address`: where other processes reach this one.
  void Start(const std::string& address);
  // Ends the term (on_lost) and releases the lease. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  View Get() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Renew(std::stop_token stop) ABSL_LOCKS_EXCLUDED(mu_);
  // Requests the lease, or only its holder if not a `candidate`.
  void Ask(bool candidate) ABSL_LOCKS_EXCLUDED(mu_);
  void GiveUp() ABSL_LOCKS_EXCLUDED(mu_);
  bool Candidate() const ABSL_LOCKS_EXCLUDED(mu_);
  // The lease is held, but no term may begin or continue under it.
  bool MustGiveUp() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Act(std::stop_token stop) ABSL_LOCKS_EXCLUDED(mu_);
  void WaitFor(absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  LeaderLease& lease_;
  const Clock& clock_;
  const Options options_;
  const Callbacks callbacks_;
  std::string address_;  // set before the threads start

  mutable Mutex mu_;
  CondVar changed_;
  LeaseState state_ ABSL_GUARDED_BY(mu_);
  absl::Time until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();  // our lease expires
  std::string trouble_ ABSL_GUARDED_BY(mu_);                      // why this process does not lead
  std::string unreachable_ ABSL_GUARDED_BY(mu_);                  // why the lease state is unknown
  std::string not_begun_ ABSL_GUARDED_BY(mu_);                    // why on_gained failed last
  int64_t active_ ABSL_GUARDED_BY(mu_) = 0;                       // current term's token; 0: none
  int64_t ended_ ABSL_GUARDED_BY(mu_) = 0;    // token of the last term that ended
  bool ending_ ABSL_GUARDED_BY(mu_) = false;  // on_lost is running
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::jthread renewer_;
  std::jthread actor_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_CLUSTER_LEADERSHIP_H_
