#ifndef FRESHET_WEIGHTS_GRPC_WEIGHT_BROADCASTER_H_
#define FRESHET_WEIGHTS_GRPC_WEIGHT_BROADCASTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "collective/communicator_backend.h"
#include "freshet/weights/v1/weight_service.pb.h"
#include "weights/grpc/channel_source.h"
#include "weights/grpc/event_count.h"
#include "weights/grpc/member_calls.h"
#include "weights/manifest.h"
#include "weights/weight_member.h"

namespace freshet {

struct BroadcasterOptions {
  std::string job;
  std::string backend_name;
  std::shared_ptr<CommunicatorBackend> backend;
  absl::Duration silence_timeout = absl::Seconds(8);  // a group without progress has failed
  int64_t piece_bytes = int64_t{64} << 20;            // as in ClusterTransportOptions
};

// The trainer's end of the broadcasts of one job. This process is rank 0 of a group with the
// engines, which is kept from one version to the next while its members stay the same. When a
// member dies, hangs or leaves in the middle, the group is given up, and one of those that still
// answer goes on with the bytes that not all of them have verified. Confined to one thread.
class WeightBroadcaster {
 public:
  // `clock` must outlive it. `events` wakes Send when a member departs. `on_bytes` receives the
  // bytes that were broadcast; may be empty.
  WeightBroadcaster(BroadcasterOptions options, ChannelSource channels, const Clock& clock,
                    std::shared_ptr<EventCount> events, std::function<void(int64_t)> on_bytes);
  ~WeightBroadcaster();

  // Sends a version. Returns the answers of members that hold it or failed by themselves, among
  // them UNIMPLEMENTED: it has not got the backend. Members without an answer are well, but no
  // group of theirs has come to the end.
  std::map<std::string, MemberAnswer> Send(
      const WeightManifest& manifest, const WeightBytes& bytes, std::vector<WeightMember> members,
      absl::Time deadline, const std::function<bool(const std::string& worker)>& departed);

 private:
  struct Group;
  struct Version {
    const WeightManifest& manifest;
    const WeightArena& bytes;
    absl::Time deadline;
    const std::function<bool(const std::string&)>& departed;
    int64_t first = 0;  // offset of the first byte to broadcast
  };
  using Answers = std::map<std::string, MemberAnswer>;
  using Request = weights::v1::PrepareBroadcastRequest;
  using Reply = weights::v1::PrepareBroadcastReply;

  // Asks which members can take part. The others get their answers and leave `members`.
  void Ask(Version& version, std::vector<WeightMember>& members, Answers& answers);
  // Broadcasts to `members`. Those that are done get their answers and leave `members`.
  absl::Status Broadcast(const Version& version, std::vector<WeightMember>& members,
                         Answers& answers);
  // Makes a group of `members` unless there is one.
  absl::Status ChooseGroup(const std::vector<WeightMember>& members);
  // Connects the group if it is new, and broadcasts.
  absl::Status SendPieces(const Version& version);
  // Calls all members, the i-th one with `request(i)`. `on_end` is called with each status, also
  // after this returns.
  std::vector<MemberAnswer> Call(const std::vector<WeightMember>& members, absl::Duration timeout,
                                 const std::function<bool(const std::string&)>& departed,
                                 const std::function<Request(size_t)>& request,
                                 const std::function<void(const absl::Status&)>& on_end,
                                 std::vector<Reply>& replies);
  Request MakeRequest(const Version& version) const;
  int64_t PieceBytes(const WeightManifest& manifest) const;

  const BroadcasterOptions options_;
  const ChannelSource channels_;
  const Clock& clock_;
  const std::shared_ptr<EventCount> events_;
  const std::function<void(int64_t)> on_bytes_;
  std::shared_ptr<Group> group_;  // may be null
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_WEIGHT_BROADCASTER_H_
