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

// One version on its way down a chain of members.
struct RelayJob {
  std::string job;
  WeightManifest manifest;
  WeightBytes bytes;
  std::vector<WeightMember> chain;
  absl::Time deadline;             // by the clock of the sender
  absl::Duration silence_timeout;  // a member that is not heard from for so long is skipped
};

// What a sender asks and tells. All are called by the thread of Run.
struct RelayHooks {
  // Length of the prefix of the bytes that may be sent; an error ends the sending.
  std::function<absl::StatusOr<int64_t>()> available;
  // A member's result, once per member, as soon as it is known. Members without one when Run
  // returns were not reached in time.
  std::function<void(const std::string& worker, const absl::Status&)> on_result;
  // At least every third of the silence timeout. May be empty.
  std::function<void()> on_alive;
  // True when a member is not to be waited for any more. May be empty.
  std::function<bool(const std::string& worker)> departed;
  // Bytes were handed to the transport. May be empty.
  std::function<void(int64_t)> on_bytes;
};

// Sends one version to the first member of a chain, which passes it on to the others. A first
// member that fails, is silent for too long, or takes more than half of the time that is left while
// others wait behind it, is skipped: the members of its chain without a result are then served from
// here, from the first byte on.
class RelaySender {
 public:
  // `events` wakes Run when more bytes are available or a member departed.
  RelaySender(RelayJob job, RelayHooks hooks, ChannelSource channels, const Clock& clock,
              std::shared_ptr<EventCount> events);

  // Blocks until every member has a result, the deadline has passed, or `available` failed.
  void Run();

 private:
  struct Attempt;
  // Serves `chain` through its first member. Returns why the attempt ended; OK: the member ended
  // it.
  absl::Status Serve(const std::vector<WeightMember>& chain);
  // Writes what can be written. True when it is us or the bytes that are waited for, not the
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
