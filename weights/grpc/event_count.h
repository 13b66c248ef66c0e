#ifndef FRESHET_WEIGHTS_GRPC_EVENT_COUNT_H_
#define FRESHET_WEIGHTS_GRPC_EVENT_COUNT_H_

#include <cstdint>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace freshet {

// Lets one thread wait for any of several sources of news: read count(), look at all sources, then
// Await that count, so that nothing is missed in between. Thread-safe.
class EventCount {
 public:
  uint64_t count() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return count_;
  }
  void Notify() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    ++count_;
    cv_.NotifyAll();
  }
  // Returns when count() differs from `seen`, or after `timeout` of real time, or earlier.
  void Await(uint64_t seen, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (count_ == seen) cv_.WaitFor(mu_, timeout);
  }

 private:
  mutable Mutex mu_;
  CondVar cv_;
  uint64_t count_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_EVENT_COUNT_H_
