#ifndef FRESHET_TRAINER_RANKS_RELAY_INBOX_H_
#define FRESHET_TRAINER_RANKS_RELAY_INBOX_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace freshet {

// The groups whose collective operations pass through one link.
enum class RelayGroup {
  kTraining,
  kBackground,  // snapshots of the state, see RankGroup::background
};
inline constexpr size_t kNumRelayGroups = 2;

// Chunks of one group's collective operations that have come over a link and are not yet taken: at
// most four, unless it is unbounded. A full inbox stops the link's reader, and so the sender.
// Thread-safe.
class RelayInbox {
 public:
  // Waits while it is full.
  void Put(std::string bytes) {
    const MutexLock lock(mu_);
    while (bounded_ && bytes_.size() >= kMostChunks && error_.ok()) {
      changed_.WaitFor(mu_, absl::Seconds(1));
    }
    if (!error_.ok()) return;
    bytes_.push_back(std::move(bytes));
    changed_.NotifyAll();
  }
  // DEADLINE_EXCEEDED: nothing came. Otherwise the error of Fail.
  absl::StatusOr<std::string> Take(absl::Duration timeout) {
    const absl::Time deadline = absl::Now() + timeout;
    const MutexLock lock(mu_);
    while (bytes_.empty()) {
      if (!error_.ok()) return error_;
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(
            "collective: not all ranks took part before the deadline");
      }
      changed_.WaitFor(mu_, left);
    }
    std::string first = std::move(bytes_.front());
    bytes_.pop_front();
    changed_.NotifyAll();
    return first;
  }
  // An unbounded inbox lets other messages of the link pass. Rank 0 can send one collective
  // operation ahead of a rank that takes no part yet.
  void SetBounded(bool bounded) {
    const MutexLock lock(mu_);
    bounded_ = bounded;
    changed_.NotifyAll();
  }
  // Closes the inbox. Chunks already received can still be taken.
  void Fail(const absl::Status& error) {
    const MutexLock lock(mu_);
    error_.Update(error);
    changed_.NotifyAll();
  }

 private:
  static constexpr size_t kMostChunks = 4;
  Mutex mu_;
  CondVar changed_;
  std::deque<std::string> bytes_ ABSL_GUARDED_BY(mu_);
  bool bounded_ ABSL_GUARDED_BY(mu_) = true;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_RELAY_INBOX_H_
