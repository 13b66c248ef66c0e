#ifndef FRESHET_DATASTORE_CHANGE_COUNTS_H_
#define FRESHET_DATASTORE_CHANGE_COUNTS_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// The change counts of a RowQueue and their waiters. Thread-safe.
class ChangeCounts {
 public:
  void Increment(Topic topic) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    ++counts_[At(topic)];
    changed_[At(topic)].NotifyAll();
  }
  // Raises the count to `count`, if it is lower.
  void RaiseTo(Topic topic, uint64_t count) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    if (count <= counts_[At(topic)]) return;
    counts_[At(topic)] = count;
    changed_[At(topic)].NotifyAll();
  }

  // ChangeCount, AwaitChange and Close of RowQueue.
  uint64_t Count(Topic topic) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    return counts_[At(topic)];
  }
  uint64_t Await(Topic topic, uint64_t seen, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time deadline = absl::Now() + timeout;
    MutexLock lock(mu_);
    while (!closed_ && counts_[At(topic)] <= seen) {
      // The system's wait takes no infinite timeout.
      const absl::Duration left = std::min(deadline - absl::Now(), absl::Seconds(60));
      if (left <= absl::ZeroDuration()) break;
      changed_[At(topic)].WaitFor(mu_, left);
    }
    return counts_[At(topic)];
  }
  void Close() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    closed_ = true;
    for (CondVar& condition : changed_) condition.NotifyAll();
  }

 private:
  static size_t At(Topic topic) { return static_cast<size_t>(topic); }

  Mutex mu_;
  std::array<uint64_t, kNumTopics> counts_ ABSL_GUARDED_BY(mu_) = {};
  std::array<CondVar, kNumTopics> changed_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_CHANGE_COUNTS_H_
