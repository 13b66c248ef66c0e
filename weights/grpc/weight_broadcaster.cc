#include "weights/grpc/weight_broadcaster.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/process_identity.h"
#include "services/runtime/status.h"
#include "weights/grpc/manifest_codec.h"

namespace freshet {
namespace {

// A group may fail twice in a version; after that the caller has other ways.
constexpr int kGroupsPerVersion = 3;

// What a sender broadcasts of a version's bytes from `first` on.
std::vector<ByteRange> RangesOf(int64_t first, int64_t total, const WeightShards* shards,
                                size_t sender) {
  if (shards != nullptr) return shards->ranges()[sender];
  return first < total ? std::vector<ByteRange>{{first, total - first}} : std::vector<ByteRange>();
}

// Whether it is the answer of a member that has taken part to the end. Damaged bytes may be those
// of one of several senders.
bool IsFinal(const absl::Status& status, bool with_shards) {
  return status.ok() || (absl::IsDataLoss(status) && !with_shards);
}

}  // namespace

// One per sender, with the same members. Shared with the ends of calls that were abandoned.
struct WeightBroadcaster::Groups {
  // Why they have failed: the first reason.
  struct Failure {
    std::string reason;
    std::string worker;  // whose call has failed; "": a sender's part
    bool left = false;   // a sender has left as planned
  };

  std::vector<std::string> ids;          // by sender; this process is sender 0
  std::vector<std::string> rendezvous;   // likewise; "": its members belong to it already
  std::vector<WeightMember> members;     // ranks 1, 2, ... of each
  std::shared_ptr<WeightShards> shards;  // null: this process alone sends
  bool aborted = false;                  // of the broadcaster's thread
  Mutex mu;
  std::optional<Failure> failure ABSL_GUARDED_BY(mu);

  // Does not block.
  void Fail(const std::string& reason, const std::string& worker = "", bool left = false)
      ABSL_LOCKS_EXCLUDED(mu) {
    MutexLock lock(mu);
    if (!failure.has_value()) failure = Failure{reason, worker, left};
  }
  std::optional<Failure> failed() ABSL_LOCKS_EXCLUDED(mu) {
    MutexLock lock(mu);
    return failure;
  }
  // Whether `members` get the next version, with these shards, from the same senders.
  bool Fits(const std::vector<WeightMember>& others, const WeightShards* with) const {
    if (members != others || (shards == nullptr) != (with == nullptr)) return false;
    return with == nullptr || shards->senders() == with->senders();
  }
};

WeightBroadcaster::WeightBroadcaster(BroadcasterOptions options, ChannelSource channels,
                                     const Clock& clock, std::shared_ptr<EventCount> events,
                                     BroadcasterHooks hooks)
    : options_(std::move(options)),
      channels_(std::move(channels)),
      clock_(clock),
      events_(std::move(events)),
      hooks_(std::move(hooks)),
      own_(clock),
      pause_(options_.retry),
      shards_pause_(options_.retry) {}

WeightBroadcaster::~WeightBroadcaster() { LeaveGroups("the trainer has left the job"); }

void WeightBroadcaster::LeaveGroups(const std::string& reason) {
  if (groups_ == nullptr) return;
  groups_->Fail(reason);
  AbortIfFailed();
  own_.Leave();
  groups_ = nullptr;
}

void WeightBroadcaster::AbortIfFailed() {
  const std::optional<Groups::Failure> failure = groups_->failed();
  if (!failure.has_value() || std::exchange(groups_->aborted, true)) return;
  own_.Abort(groups_->ids[0], failure->reason);
  for (size_t sender = 1; sender < groups_->ids.size(); ++sender) {
    groups_->shards->Abort(sender, groups_->ids[sender], failure->reason);
  }
}

int64_t WeightBroadcaster::PieceBytes(const WeightManifest& manifest) const {
  const int64_t bucket = manifest.bucket_bytes;
  return std::max<int64_t>(1, options_.piece_bytes / bucket) * bucket;
}

WeightBroadcaster::Request WeightBroadcaster::MakeRequest(const Version& version) const {
  Request request;
  request.set_job(options_.job);
  ManifestToProto(version.manifest, *request.mutable_manifest());
  request.set_backend(options_.backend_name);
  *request.mutable_silence_timeout() = ToDuration(Patience(version));
  request.set_piece_bytes(PieceBytes(version.manifest));
  return request;
}

WeightBroadcaster::Request WeightBroadcaster::MakeRequest(const Version& version, int rank) const {
  Request request = MakeRequest(version);
  for (size_t sender = 0; sender < groups_->ids.size(); ++sender) {
    const SendOrder order = OrderFor(version, sender);
    weights::v1::BroadcastGroup& group = *request.add_groups();
    group.set_id(order.group);
    group.set_rank(rank);
    group.set_size(order.size);
    group.set_rendezvous(order.rendezvous);
    for (const ByteRange& range :
         RangesOf(version.first, version.manifest.total_bytes, version.shards.get(), sender)) {
      weights::v1::ByteRange& added = *group.add_ranges();
      added.set_first(range.first);
      added.set_size(range.size);
    }
  }
  return request;
}

SendOrder WeightBroadcaster::OrderFor(const Version& version, size_t sender) const {
  SendOrder order;
  order.group = groups_->ids[sender];
  order.size = static_cast<int>(groups_->members.size()) + 1;
  order.rendezvous = groups_->rendezvous[sender];
  order.piece_bytes = PieceBytes(version.manifest);
  order.silence_timeout = Patience(version);
  return order;
}

std::vector<MemberAnswer> WeightBroadcaster::Call(
    const std::vector<WeightMember>& members, absl::Duration timeout,
    const std::function<bool(const std::string&)>& departed,
    const std::function<Request(size_t)>& request,
    const std::function<void(size_t, const absl::Status&)>& on_end, std::vector<Reply>& replies) {
  std::vector<std::shared_ptr<Reply>> kept(members.size());
  std::vector<MemberAnswer> answers = CallMembers(
      members, channels_, timeout, events_, departed,
      [&](size_t index, weights::v1::WeightService::Stub& stub, grpc::ClientContext* context,
          std::function<void(grpc::Status)> done) {
        auto message = std::make_shared<const Request>(request(index));
        auto reply = kept[index] = std::make_shared<Reply>();
        stub.async()->PrepareBroadcast(
            context, message.get(), reply.get(),
            [index, message, reply, on_end, done = std::move(done)](const grpc::Status& status) {
              on_end(index, runtime::GrpcToStatus(status));
              done(status);
            });
      });
  replies.assign(members.size(), Reply());
  for (size_t i = 0; i < members.size(); ++i) {
    if (answers[i].status.ok() && kept[i] != nullptr) replies[i] = *kept[i];
  }
  return answers;
}

// How long to wait for engines that may be gone, so that time is left for the others.
absl::Duration WeightBroadcaster::Patience(const Version& version) const {
  return std::min(options_.silence_timeout, (version.deadline - version.start) / 4);
}

void WeightBroadcaster::Ask(Version& version, std::vector<WeightMember>& members,
                            Answers& answers) {
  const absl::Duration timeout = std::min(Patience(version), version.deadline - clock_.Now());
  std::vector<Reply> replies;
  const std::vector<MemberAnswer> asked = Call(
      members, timeout, version.departed, [&](size_t) { return MakeRequest(version); },
      [](size_t, const absl::Status&) {}, replies);
  version.first = version.manifest.total_bytes;
  std::vector<WeightMember> ready;
  for (size_t i = 0; i < members.size(); ++i) {
    // Busy with a former group: it gets no result, and is not in the next group.
    if (absl::IsAborted(asked[i].status)) continue;
    if (!asked[i].status.ok() || replies[i].prepared()) {
      answers[members[i].worker] = {asked[i].status, clock_.Now() - version.start};
      continue;
    }
    version.first = std::clamp<int64_t>(replies[i].verified(), 0, version.first);
    ready.push_back(members[i]);
  }
  version.first -= version.first % version.manifest.bucket_bytes;
  members = std::move(ready);
}

absl::Status WeightBroadcaster::ChooseGroups(const Version& version,
                                             const std::vector<WeightMember>& members) {
  if (groups_ != nullptr && groups_->Fits(members, version.shards.get()) &&
      !groups_->failed().has_value() && own_.Works(groups_->ids[0])) {
    groups_->shards = version.shards;
    groups_->rendezvous.assign(groups_->ids.size(), "");  // they belong to them already
    return absl::OkStatus();
  }
  LeaveGroups("its members have changed");
  auto groups = std::make_shared<Groups>();
  groups->members = members;
  groups->shards = version.shards;
  const size_t senders = version.shards == nullptr ? 1 : version.shards->ranges().size();
  for (size_t sender = 0; sender < senders; ++sender) {
    FRESHET_ASSIGN_OR_RETURN(std::string rendezvous, options_.backend->NewRendezvous());
    groups->rendezvous.push_back(std::move(rendezvous));
    groups->ids.push_back(runtime::RandomId());
  }
  groups_ = std::move(groups);
  FRESHET_LOG(Info) << "event=weight_group backend=" << options_.backend_name
                    << " engines=" << members.size() << " senders=" << senders;
  return absl::OkStatus();
}

void WeightBroadcaster::StartShards(const Version& version) {
  for (size_t sender = 1; sender < groups_->ids.size(); ++sender) {
    groups_->shards->Send(sender, options_.backend_name, OrderFor(version, sender),
                          version.deadline - clock_.Now(),
                          [groups = groups_, events = events_, sender](const absl::Status& status) {
                            if (status.ok()) return;
                            groups->Fail(StrCat("sender ", sender, ": ", Message(status)), "",
                                         absl::IsCancelled(status));
                            events->Notify();
                          });
  }
}

absl::Status WeightBroadcaster::SendOwn(const Version& version) {
  SendParts parts;
  for (const ByteRange& range :
       RangesOf(version.first, version.manifest.total_bytes, version.shards.get(), 0)) {
    parts.emplace_back(version.bytes.data() + range.first, static_cast<size_t>(range.size));
  }
  return own_.Send(*options_.backend, OrderFor(version, 0), parts, version.deadline,
                   hooks_.on_bytes);
}

absl::Status WeightBroadcaster::Broadcast(const Version& version,
                                          std::vector<WeightMember>& members, Answers& answers,
                                          std::string* culprit) {
  FRESHET_RETURN_IF_ERROR(ChooseGroups(version, members));
  std::vector<Reply> replies;
  std::vector<MemberAnswer> ended;
  const bool with_shards = version.shards != nullptr;
  StartShards(version);
  {
    const std::jthread sender([&] {
      const absl::Status sent = SendOwn(version);
      if (sent.ok()) return;
      groups_->Fail(Message(sent));
      events_->Notify();
    });
    ended = Call(
        members, version.deadline - clock_.Now(),
        [&](const std::string& worker) {
          // After a failure it aborts all groups and waits for no member.
          if (!groups_->failed().has_value()) return version.departed(worker);
          AbortIfFailed();
          return true;
        },
        [&](size_t index) { return MakeRequest(version, static_cast<int>(index) + 1); },
        [groups = groups_, with_shards](size_t index, const absl::Status& status) {
          const std::string& worker = groups->members[index].worker;
          if (!IsFinal(status, with_shards))
            groups->Fail(StrCat(worker, ": ", Message(status)), worker);
        },
        replies);
    for (size_t i = 0; i < members.size(); ++i) {
      if (ended[i].status.ok() && !replies[i].prepared()) {
        ended[i].status = absl::UnavailableError("it has not prepared the version");
      }
      const std::string& worker = members[i].worker;
      if (!IsFinal(ended[i].status, with_shards)) {
        groups_->Fail(StrCat(worker, ": ", Message(ended[i].status)), worker);
      }
    }
    AbortIfFailed();  // before the sender is waited for
  }
  std::vector<WeightMember> left;
  for (size_t i = 0; i < members.size(); ++i) {
    if (IsFinal(ended[i].status, with_shards)) {
      answers[members[i].worker] = {ended[i].status, clock_.Now() - version.start};
    } else {
      left.push_back(members[i]);
    }
  }
  members = std::move(left);
  const std::optional<Groups::Failure> failure = groups_->failed();
  if (!failure.has_value()) return absl::OkStatus();
  *culprit = failure->worker;
  LeaveGroups(failure->reason);
  return StatusOf(failure->left ? absl::StatusCode::kCancelled : absl::StatusCode::kUnavailable,
                  failure->reason);
}

std::map<std::string, MemberAnswer> WeightBroadcaster::Send(
    const CommittedWeights& committed, std::vector<WeightMember> members, absl::Time deadline,
    const std::function<bool(const std::string&)>& departed) {
  Answers answers;
  const absl::Time start = clock_.Now();
  if (start < next_try_) return answers;
  std::erase_if(left_out_, [start](const auto& entry) { return entry.second <= start; });
  std::erase_if(members, [this](const auto& member) { return left_out_.contains(member.worker); });
  Version version{committed.snapshot.manifest, *committed.snapshot.bytes, start, deadline,
                  departed};
  absl::Status status;
  for (int group = 1; group <= kGroupsPerVersion && !members.empty(); ++group) {
    // Half of the time is for other ways.
    if (clock_.Now() - start > (deadline - start) / 2) break;
    Ask(version, members, answers);
    if (members.empty()) break;
    const bool shared = group == 1 && version.first == 0 && start >= next_shards_;
    version.shards = shared ? committed.shards : nullptr;
    std::string culprit;
    status = Broadcast(version, members, answers, &culprit);
    if (version.shards != nullptr) PauseShards(status);
    if (status.ok()) continue;
    if (hooks_.on_group_failed) hooks_.on_group_failed();
    FRESHET_LOG(Warning) << "event=weight_group_failed version=" << version.manifest.policy.version
                         << " group=" << group << " left=" << members.size()
                         << " reason=" << LogQuoted(Message(status));
    // A member that is gone does not answer the next question. One that answers and fails twice
    // would fail every group.
    if (group == 2 && !culprit.empty()) {
      left_out_[culprit] = start + options_.retry;
      std::erase_if(members, [&](const auto& member) { return member.worker == culprit; });
    }
  }
  Pause(answers, status);
  return answers;
}

void WeightBroadcaster::PauseShards(const absl::Status& status) {
  if (status.ok()) shards_pause_ = options_.retry;
  if (status.ok() || absl::IsCancelled(status)) return;
  next_shards_ = clock_.Now() + shards_pause_;
  shards_pause_ = std::min(2 * shards_pause_, 16 * options_.retry);
}

void WeightBroadcaster::Pause(const Answers& answers, const absl::Status& status) {
  const bool brought = std::any_of(answers.begin(), answers.end(),
                                   [](const auto& answer) { return answer.second.status.ok(); });
  if (brought || status.ok()) {
    pause_ = options_.retry;
    return;
  }
  next_try_ = clock_.Now() + pause_;
  FRESHET_LOG(Error) << "event=no_broadcasts seconds=" << absl::ToInt64Seconds(pause_)
                     << " backend=" << options_.backend_name << " reason="
                     << LogQuoted(StrCat("no group has worked, last: ", Message(status),
                                         ". Allow connections between trainer and engines (chart "
                                         "value networkPolicy.nccl) or use another "
                                         "weight_sync.transport; until then weights go by "
                                         "grpc_relay"));
  pause_ = std::min(2 * pause_, 16 * options_.retry);
}

}  // namespace freshet
