#ifndef FRESHET_TRAINER_RANKS_JOINED_RANKS_H_
#define FRESHET_TRAINER_RANKS_JOINED_RANKS_H_

#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace freshet {

// The processes that have joined this trainer as its further ranks and wait for work, each behind a
// socket. A rank that is lost again and again is not used for a while, so that it does not keep the
// others from training. Thread-safe.
class JoinedRanks {
 public:
  struct Rank {
    int number = 0;
    UniqueFd socket;
  };

  // For ranks 1 .. ranks - 1. `clock` must outlive it.
  explicit JoinedRanks(int ranks, const Clock& clock = SystemClock::Get())
      : ranks_(ranks), clock_(clock) {}

  // Of the trainer, with rank 0.
  int ranks() const { return ranks_; }

  // Replaces a process with the same number, whose socket is closed: it has been restarted. Returns
  // an id for Remove.
  int64_t Add(int number, UniqueFd socket);
  // The process is gone. No effect if it was taken or replaced.
  void Remove(int number, int64_t id);
  // A group has lost the rank. From the second time on within ten minutes, it is not given for 10 s
  // and then for twice as long each time.
  void NoteLoss(int number);
  // Take returns nothing any more: this process ends.
  void Stop();
  bool stopped() const;

  // Numbers of those that wait and may be given, in ascending order.
  std::vector<int> Ready() const;
  // Takes up to `most` of those, as soon as there are so many, or those that are there after
  // `timeout`. In the order of their numbers. None after `stop`.
  std::vector<Rank> Take(int most, absl::Duration timeout, const std::stop_token& stop = {});
  // Numbers of the others, for messages: "1, 3".
  std::string Missing() const;

 private:
  struct Waiting {
    int64_t id = 0;
    UniqueFd socket;
  };
  struct Losses {
    int count = 0;
    absl::Time last;
    absl::Time usable;  // from then on
  };

  std::vector<int> ReadyNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Until the first rank that waits may be given again; infinite without one.
  absl::Duration UntilNextUsable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int ranks_;
  const Clock& clock_;
  mutable Mutex mu_;
  CondVar changed_;
  int64_t ids_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::map<int, Waiting> waiting_ ABSL_GUARDED_BY(mu_);  // by number
  std::map<int, Losses> losses_ ABSL_GUARDED_BY(mu_);    // by number
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_JOINED_RANKS_H_
