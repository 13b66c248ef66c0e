#ifndef FRESHET_WEIGHTS_GRPC_RELAY_SENDER_H_
#define FRESHET_WEIGHTS_GRPC_RELAY_SENDER_H_

#include <cstdint>
#include <functional>
#include <memory>
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
};

// Sends one version to the first member of a chain, which relays it to the others. The first member
// is skipped if it fails, is silent for too long, or takes more than half of the remaining time
// while others wait behind it. Members of its chain without a result are then served from here,
// starting at the first byte.
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
  // Writes available bytes. Returns true if this side or the bytes are the bottleneck, not the
  // member.
  absl::StatusOr<bool> Feed(Attempt& attempt, bool writable);
  absl::Status CheckPatience(Attempt& attempt, bool own_wait);
  void Record(const std::string& worker, const absl::Status& status);
  bool IsOpen(const std::string& worker) const { return open_.contains(worker); }

  const RelayJob job_;
  const RelayHooks hooks_;
  const ChannelSource channels_;
  const Clock& clock_;
  const std::shared_ptr<EventCount> events_;
  std::set<std::string> open_;  // members without a result
  absl::Time alive_at_;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_RELAY_SENDER_H_
