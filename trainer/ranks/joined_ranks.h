#ifndef FRESHET_TRAINER_RANKS_JOINED_RANKS_H_
#define FRESHET_TRAINER_RANKS_JOINED_RANKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace freshet {

// The processes that have joined this trainer as its further ranks and wait for work, each behind a
// socket. Thread-safe.
class JoinedRanks {
 public:
  struct Rank {
    int number = 0;
    UniqueFd socket;
  };

  // For ranks 1 .. ranks - 1.
  explicit JoinedRanks(int ranks) : ranks_(ranks) {}

  // Of the trainer, with rank 0.
  int ranks() const { return ranks_; }

  // Replaces a process with the same number, whose socket is closed: it has been restarted. Returns
  // an id for Remove.
  int64_t Add(int number, UniqueFd socket);
  // The process is gone. No effect if it was taken or replaced.
  void Remove(int number, int64_t id);

  // How many wait.
  int Ready() const;
  // Takes up to `most` of those that wait, as soon as there are so many, or those that are there
  // after `timeout`. In the order of their numbers.
  std::vector<Rank> Take(int most, absl::Duration timeout);
  // Numbers of those that do not wait, for messages: "1, 3".
  std::string Missing() const;

 private:
  struct Waiting {
    int64_t id = 0;
    UniqueFd socket;
  };

  const int ranks_;
  mutable Mutex mu_;
  CondVar changed_;
  int64_t ids_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<int, Waiting> waiting_ ABSL_GUARDED_BY(mu_);  // by number
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_RANKS_JOINED_RANKS_H_
