#ifndef FRESHET_WEIGHTS_RANGE_SENDER_H_
#define FRESHET_WEIGHTS_RANGE_SENDER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "collective/communicator_backend.h"

namespace freshet {

// How one sender, which is rank 0 of a group with the engines, broadcasts its bytes of a version.
struct SendOrder {
  std::string group;       // its id
  int size = 2;            // of the group
  std::string rendezvous;  // "": the sender belongs to the group already
  int64_t piece_bytes = 0;
  absl::Duration silence_timeout;  // a group without progress has failed
};

// Bytes to send, in memory.
using SendParts = std::vector<std::span<const std::byte>>;

// A sender's side of broadcasts. Keeps its group from one version to the next. Send and Leave are
// called by one thread at a time; all else is thread-safe.
class RangeSender {
 public:
  // `clock` must outlive it.
  explicit RangeSender(const Clock& clock) : clock_(clock) {}

  // Joins the group unless it belongs to it, and broadcasts each part in pieces. Calls `on_bytes`,
  // which may be empty, after each piece. Blocks until `deadline` at most. UNAVAILABLE also if the
  // rendezvous is "" and it does not belong to the group; otherwise errors of Connect and
  // Communicator.
  absl::Status Send(CommunicatorBackend& backend, const SendOrder& order, const SendParts& parts,
                    absl::Time deadline, const std::function<void(int64_t)>& on_bytes)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Ends a Send to this group, also one that comes later, with ABORTED. Does not wait.
  void Abort(const std::string& group, const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);
  // Closes the group.
  void Leave() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether it belongs to this group, which has not failed.
  bool Works(const std::string& group) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<std::shared_ptr<Communicator>> Join(CommunicatorBackend& backend,
                                                     const SendOrder& order, const SendParts& parts,
                                                     absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  bool AbortedLocked(const std::string& group) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Clock& clock_;
  mutable Mutex mu_;
  std::string group_ ABSL_GUARDED_BY(mu_);                // of connecting_ and communicator_
  std::deque<std::string> aborted_ ABSL_GUARDED_BY(mu_);  // the last groups that were aborted
  std::stop_source connecting_ ABSL_GUARDED_BY(mu_);
  std::shared_ptr<Communicator> communicator_ ABSL_GUARDED_BY(mu_);  // null: not connected
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_RANGE_SENDER_H_
