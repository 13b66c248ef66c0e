#ifndef FRESHET_WEIGHTS_GRPC_RELAY_SENDER_H_
#define FRESHET_WEIGHTS_GRPC_RELAY_SENDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "weights/grpc/channel_source.h"
#include "weights/grpc/event_count.h"
#include "weights/grpc/relay_link.h"
#include "weights/manifest.h"
#include "weights/weight_member.h"

namespace freshet {

// One version to send along a chain of members.
struct RelayJob {
  std::string job;
  WeightManifest manifest;
  WeightBytes bytes;
  std::vector<WeightMember> chain;
  absl::Time deadline;             // by the sender's clock
  absl::Duration silence_timeout;  // a member that is silent for longer is skipped
  // A first member that has this version active gets differences from it. Has as many bytes.
  std::optional<WeightSnapshot> base = std::nullopt;
};

// Callbacks of a sender, all called on Run's thread.
struct RelayHooks {
  // Length of the prefix of the bytes that may be sent. An error stops the sender.
  std::function<absl::StatusOr<int64_t>()> available;
  // Reports each member's result once, as soon as it is known. Members without a result when Run
  // returns were not reached in time.
  std::function<void(const std::string& worker, const absl::Status&)> on_result;
  // Called at least every third of the silence timeout. May be empty.
  std::function<void()> on_alive;
  // Whether to stop waiting for a member. May be empty.
  std::function<bool(const std::string& worker)> departed;
  // Number of bytes handed to the transport. May be empty.
  std::function<void(int64_t)> on_bytes;
  // Number of bytes of the version that were sent to a member that gets differences, and number of
  // bytes handed to the transport for them. May be empty.
  std::function<void(int64_t bytes, int64_t sent)> on_delta;
  // A member reported corrupt differences; it is sent the whole version. May be empty.
  std::function<void(const std::string& worker, const absl::Status&)> on_corrupt_delta;
};

// Sends one version to the first member of a chain, which relays it to the others. The first member
// is skipped if it fails, is silent for too long, or takes more than half of the remaining time
// while others wait behind it. Members of its chain without a result are then served from here,
// starting at the first byte. A member that reports corrupt bytes after differences is served once
// more, without, and so are those after it. A member that replaces the call by another sender's is
// served once more too: an earlier call may arrive later.
class RelaySender {
 public:
  // `events` wakes Run when more bytes are available or a member departs.
  RelaySender(RelayJob job, RelayHooks hooks, ChannelSource channels, const Clock& clock,
              std::shared_ptr<EventCount> events);

  // Blocks until every member has a result, the deadline passes, or `available` fails.
  void Run();

 private:
  struct Attempt;
  // Serves `chain` through its first member. Returns why the attempt ended; OK: the member ended
  // it.
  absl::Status Serve(const std::vector<WeightMember>& chain);
  // Records results. DATA_LOSS: the member of the attempt has got corrupt differences.
  absl::Status Take(const std::vector<weights::v1::MemberResult>& results, const Attempt& attempt);
  // Writes available bytes. Returns true if this side or the bytes are the bottleneck, not the
  // member.
  absl::StatusOr<bool> Feed(Attempt& attempt, bool writable);
  // Writes the next `size` bytes, as a difference if the attempt is for that.
  void Write(Attempt& attempt, int64_t size);
  absl::Status CheckPatience(Attempt& attempt, bool own_wait);
  void Record(const std::string& worker, const absl::Status& status);
  bool IsOpen(const std::string& worker) const { return open_.contains(worker); }

  const RelayJob job_;
  const RelayHooks hooks_;
  const ChannelSource channels_;
  const Clock& clock_;
  const std::shared_ptr<EventCount> events_;
  std::set<std::string> open_;      // members without a result
  std::set<std::string> replaced_;  // members that ended a call for another one, and got a second
  bool delta_;                      // members are asked for their base
  absl::Time alive_at_;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_RELAY_SENDER_H_
