#ifndef FRESHET_BASE_MUTEX_H_
#define FRESHET_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace freshet {

// std::mutex with clang's thread-safety annotations. Replaces absl::Mutex because the system's absl
// is not instrumented, which makes ThreadSanitizer report false races.
class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mu_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mu) ABSL_EXCLUSIVE_LOCK_FUNCTION(mu) : mu_(mu) { mu_.Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mu_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

// Condition variable for Mutex. Wake-ups may be spurious: wait in a loop.
class CondVar {
 public:
  // Waits up to `timeout` (real time). Returns false on timeout.
  bool WaitFor(Mutex& mu, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    std::unique_lock<std::mutex> lock(mu.mu_, std::adopt_lock);
    const auto status = cv_.wait_for(lock, absl::ToChronoNanoseconds(timeout));
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

// One-shot flag that threads can wait for. Thread-safe.
class Notification {
 public:
  void Notify() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    done_ = true;
    cv_.NotifyAll();
  }
  bool HasBeenNotified() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return done_;
  }
  // Waits up to `timeout` (real time). Returns true if notified.
  bool WaitFor(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time deadline = absl::Now() + timeout;
    MutexLock lock(mu_);
    while (!done_) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) return false;
      cv_.WaitFor(mu_, left);
    }
    return true;
  }

 private:
  mutable Mutex mu_;
  CondVar cv_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet

#endif  // FRESHET_BASE_MUTEX_H_
