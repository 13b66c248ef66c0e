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
#include "weights/range_sender.h"
#include "weights/weight_member.h"
#include "weights/weight_shards.h"

namespace freshet {

struct BroadcasterOptions {
  std::string job;
  std::string backend_name;
  std::shared_ptr<CommunicatorBackend> backend;
  absl::Duration silence_timeout;  // a group without progress has failed
  int64_t piece_bytes = 0;         // at least a bucket
  // Time without broadcasts after a version that no group has brought, and without shards after
  // groups with them have failed; doubles to sixteen times.
  absl::Duration retry;
};

// Callbacks of a broadcaster, on any thread during Send.
struct BroadcasterHooks {
  std::function<void(int64_t)> on_bytes;  // that were broadcast
  std::function<void()> on_group_failed;
};

// The trainer's side of one job's broadcasts. This process is rank 0 of a group with the engines;
// the group is reused while its members stay the same. If the version has shards, each of the other
// senders is rank 0 of a further group with the same engines, and all broadcast side by side. If a
// member or a sender dies, hangs or leaves, the groups are aborted, and a new group of this process
// and the members that still answer continues after the prefix that all of them have verified.
// Confined to one thread.
class WeightBroadcaster {
 public:
  // `clock` must outlive it. `events` wakes Send when a member departs. Hooks may be empty.
  WeightBroadcaster(BroadcasterOptions options, ChannelSource channels, const Clock& clock,
                    std::shared_ptr<EventCount> events, BroadcasterHooks hooks);
  ~WeightBroadcaster();

  // Sends a version. Blocks until `deadline` at most. Returns a result for each member that holds
  // the version or failed on its own, with the time since the start; UNIMPLEMENTED: it lacks the
  // backend. A member without a result may be well, but none of its groups has completed: send to
  // it another way.
  std::map<std::string, MemberAnswer> Send(
      const CommittedWeights& committed, std::vector<WeightMember> members, absl::Time deadline,
      const std::function<bool(const std::string& worker)>& departed);

 private:
  struct Groups;
  struct Version {
    const WeightManifest& manifest;
    const WeightArena& bytes;
    absl::Time start;
    absl::Time deadline;
    const std::function<bool(const std::string&)>& departed;
    std::shared_ptr<WeightShards> shards = nullptr;  // whose senders take part; null: none
    int64_t first = 0;                               // offset of the first byte to broadcast
  };
  using Answers = std::map<std::string, MemberAnswer>;
  using Request = weights::v1::PrepareBroadcastRequest;
  using Reply = weights::v1::PrepareBroadcastReply;

  // Asks which members can take part. The others get their results and leave `members`.
  void Ask(Version& version, std::vector<WeightMember>& members, Answers& answers);
  // Broadcasts to `members`. Those that are done get their results and leave `members`. If the
  // groups fail, `culprit` is the worker that was the first to fail; "": unknown. CANCELLED: a
  // sender of shards has left.
  absl::Status Broadcast(const Version& version, std::vector<WeightMember>& members,
                         Answers& answers, std::string* culprit);
  void LeaveGroups(const std::string& reason);
  // Makes groups of `members` unless there are some.
  absl::Status ChooseGroups(const Version& version, const std::vector<WeightMember>& members);
  // Lets the senders of shards send theirs.
  void StartShards(const Version& version);
  // Connects this process's group if it is new, and broadcasts.
  absl::Status SendOwn(const Version& version);
  // Ends all senders' parts if the groups have failed. Does not wait.
  void AbortIfFailed();
  // Calls all members, the i-th one with `request(i)`. `on_end` is called with the index and the
  // status of a call that has ended, on gRPC's threads, also after this returns.
  std::vector<MemberAnswer> Call(const std::vector<WeightMember>& members, absl::Duration timeout,
                                 const std::function<bool(const std::string&)>& departed,
                                 const std::function<Request(size_t)>& request,
                                 const std::function<void(size_t, const absl::Status&)>& on_end,
                                 std::vector<Reply>& replies);
  // Pauses broadcasts after a version that no group has brought to any member. `status` is that of
  // the last group.
  void Pause(const Answers& answers, const absl::Status& status);
  // After groups with shards: `status` is theirs.
  void PauseShards(const absl::Status& status);
  absl::Duration Patience(const Version& version) const;
  Request MakeRequest(const Version& version) const;
  // For the member that has this rank in every group.
  Request MakeRequest(const Version& version, int rank) const;
  SendOrder OrderFor(const Version& version, size_t sender) const;
  int64_t PieceBytes(const WeightManifest& manifest) const;

  const BroadcasterOptions options_;
  const ChannelSource channels_;
  const Clock& clock_;
  const std::shared_ptr<EventCount> events_;
  const BroadcasterHooks hooks_;
  RangeSender own_;
  std::shared_ptr<Groups> groups_;  // may be null
  // Workers that no group includes until then.
  std::map<std::string, absl::Time> left_out_;
  absl::Duration pause_;  // after versions that no group has brought
  absl::Time next_try_ = absl::InfinitePast();
  absl::Duration shards_pause_;  // of shards, after groups with them have failed
  absl::Time next_shards_ = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_WEIGHT_BROADCASTER_H_
