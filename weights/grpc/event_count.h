#ifndef FRESHET_WEIGHTS_GRPC_EVENT_COUNT_H_
#define FRESHET_WEIGHTS_GRPC_EVENT_COUNT_H_

#include <cstdint>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace freshet {

// Lets a thread wait for several event sources without missing one: read count(), check all
// sources, then Await that count. Thread-safe.
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
  // Returns when count() differs from `seen`, after `timeout` of real time, or spuriously.
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
