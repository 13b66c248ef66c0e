#ifndef FRESHET_ROLLOUT_WORKER_LEASE_RENEWER_H_
#define FRESHET_ROLLOUT_WORKER_LEASE_RENEWER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Renews leases on its own thread while their holder is in a long call. It looks every `period` of
// real time. A call that it sees twice is renewed at each look, until it has run for about
// `longest`. Errors and lost leases are ignored: the holder's next RenewLeases reports them. During
// is for the holder's thread only. The destructor waits for a renewal in progress.
class LeaseRenewer {
 public:
  // `store` must outlive it. `longest` 0: it does nothing.
  LeaseRenewer(TrajectoryStore& store, absl::Duration period, absl::Duration longest);
  ~LeaseRenewer();
  LeaseRenewer(const LeaseRenewer&) = delete;
  LeaseRenewer& operator=(const LeaseRenewer&) = delete;

  // Runs `call`, during which `worker` keeps the leases `tokens`. Calls must not overlap.
  template <typename Call>
  auto During(const std::string& worker, std::vector<int64_t> tokens, Call&& call)
      -> decltype(call()) {
    Begin({worker, std::move(tokens)});
    const absl::Cleanup end = [this] { End(); };
    return call();
  }

 private:
  struct Leases {
    std::string worker;
    std::vector<int64_t> tokens;
  };

  void Begin(Leases leases) ABSL_LOCKS_EXCLUDED(mu_);
  void End() ABSL_LOCKS_EXCLUDED(mu_);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until leases must be renewed. Empty: the renewer ends.
  std::optional<Leases> Await() ABSL_LOCKS_EXCLUDED(mu_);

  TrajectoryStore& store_;
  const absl::Duration period_;
  const absl::Duration longest_;

  Mutex mu_;
  CondVar wake_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<Leases> leases_ ABSL_GUARDED_BY(mu_);  // set during a call
  int64_t call_ ABSL_GUARDED_BY(mu_) = 0;              // number of the last call
  int64_t seen_ ABSL_GUARDED_BY(mu_) = 0;              // the call at the last look
  absl::Duration seen_for_ ABSL_GUARDED_BY(mu_);
  std::jthread thread_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_WORKER_LEASE_RENEWER_H_
