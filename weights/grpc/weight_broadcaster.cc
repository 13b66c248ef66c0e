#include "weights/grpc/weight_broadcaster.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "services/runtime/process_identity.h"
#include "weights/grpc/manifest_codec.h"
#include "weights/transfer_time.h"

namespace freshet {
namespace {

// A group may lose members twice in a version; after that the caller has other ways.
constexpr int kGroupsPerVersion = 3;

}  // namespace

// Shared with the ends of calls that were abandoned.
struct WeightBroadcaster::Group {
  const std::string id = runtime::RandomId();
  std::string rendezvous;
  std::vector<WeightMember> members;  // ranks 1, 2, ...
  Mutex mu;
  std::stop_source connecting ABSL_GUARDED_BY(mu);
  bool given_up ABSL_GUARDED_BY(mu) = false;
  std::shared_ptr<Communicator> communicator ABSL_GUARDED_BY(mu);  // null: not connected

  void GiveUp(const std::string& reason) ABSL_LOCKS_EXCLUDED(mu) {
    std::shared_ptr<Communicator> connected;
    {
      MutexLock lock(mu);
      if (std::exchange(given_up, true)) return;
      connecting.request_stop();
      connected = communicator;
    }
    if (connected != nullptr) connected->Abort(reason);
  }
  bool Works() ABSL_LOCKS_EXCLUDED(mu) {
    MutexLock lock(mu);
    return !given_up && communicator != nullptr && communicator->error().ok();
  }
};

WeightBroadcaster::WeightBroadcaster(BroadcasterOptions options, ChannelSource channels,
                                     const Clock& clock, std::shared_ptr<EventCount> events,
                                     std::function<void(int64_t)> on_bytes)
    : options_(std::move(options)),
      channels_(std::move(channels)),
      clock_(clock),
      events_(std::move(events)),
      on_bytes_(std::move(on_bytes)) {}

WeightBroadcaster::~WeightBroadcaster() {
  if (group_ != nullptr) group_->GiveUp("the trainer has left the job");
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
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(options_.silence_timeout);
  request.mutable_silence_timeout()->set_seconds(nanoseconds / 1'000'000'000);
  request.mutable_silence_timeout()->set_nanos(static_cast<int32_t>(nanoseconds % 1'000'000'000));
  return request;
}

std::vector<MemberAnswer> WeightBroadcaster::Call(
    const std::vector<WeightMember>& members, absl::Duration timeout,
    const std::function<bool(const std::string&)>& departed,
    const std::function<Request(size_t)>& request,
    const std::function<void(const absl::Status&)>& on_end, std::vector<Reply>& replies) {
  std::vector<std::shared_ptr<Reply>> kept(members.size());
  std::vector<MemberAnswer> answers = CallMembers(
      members, channels_, timeout, events_, departed,
      [&](size_t index, weights::v1::WeightService::Stub& stub, grpc::ClientContext* context,
          std::function<void(grpc::Status)> done) {
        auto message = std::make_shared<const Request>(request(index));
        auto reply = kept[index] = std::make_shared<Reply>();
        stub.async()->PrepareBroadcast(
            context, message.get(), reply.get(),
            [message, reply, on_end, done = std::move(done)](const grpc::Status& status) {
              on_end(status.ok() ? absl::OkStatus()
                                 : absl::UnavailableError(status.error_message()));
              done(status);
            });
      });
  replies.assign(members.size(), Reply());
  for (size_t i = 0; i < members.size(); ++i) {
    if (answers[i].status.ok() && kept[i] != nullptr) replies[i] = *kept[i];
  }
  return answers;
}

void WeightBroadcaster::Ask(Version& version, std::vector<WeightMember>& members,
                            Answers& answers) {
  const absl::Duration timeout =
      std::min(options_.silence_timeout, version.deadline - clock_.Now());
  std::vector<Reply> replies;
  const std::vector<MemberAnswer> asked = Call(
      members, timeout, version.departed, [&](size_t) { return MakeRequest(version); },
      [](const absl::Status&) {}, replies);
  version.first = version.manifest.total_bytes;
  std::vector<WeightMember> ready;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!asked[i].status.ok() || replies[i].prepared()) {
      answers[members[i].worker] = asked[i];
      continue;
    }
    version.first = std::clamp<int64_t>(replies[i].verified(), 0, version.first);
    ready.push_back(members[i]);
  }
  version.first -= version.first % version.manifest.bucket_bytes;
  members = std::move(ready);
}

absl::Status WeightBroadcaster::ChooseGroup(const std::vector<WeightMember>& members) {
  if (group_ != nullptr && group_->members == members && group_->Works()) return absl::OkStatus();
  if (group_ != nullptr) group_->GiveUp("its members have changed");
  group_ = std::make_shared<Group>();
  group_->members = members;
  FRESHET_ASSIGN_OR_RETURN(group_->rendezvous, options_.backend->NewRendezvous());
  FRESHET_LOG(Info) << "event=weight_group backend=" << options_.backend_name
                    << " engines=" << members.size();
  return absl::OkStatus();
}

absl::Status WeightBroadcaster::SendPieces(const Version& version) {
  std::shared_ptr<Communicator> communicator;
  GroupPlace place;
  {
    MutexLock lock(group_->mu);
    communicator = group_->communicator;
    place.stop = group_->connecting.get_token();
  }
  if (communicator == nullptr) {
    place.size = static_cast<int>(group_->members.size()) + 1;
    place.rendezvous = group_->rendezvous;
    place.timeout = std::min(options_.silence_timeout, version.deadline - clock_.Now());
    FRESHET_ASSIGN_OR_RETURN(communicator, options_.backend->Connect(place));
    MutexLock lock(group_->mu);
    if (group_->given_up) return absl::AbortedError("a member has failed");
    group_->communicator = communicator;
  }
  const int64_t total = version.manifest.total_bytes;
  const int64_t piece = PieceBytes(version.manifest);
  for (int64_t at = version.first; at < total; at += piece) {
    const int64_t size = std::min(piece, total - at);
    // The root of a broadcast only reads.
    auto* const data = const_cast<std::byte*>(version.bytes.data()) + at;
    const absl::Duration timeout =
        std::min(StepTime(options_.silence_timeout, size), version.deadline - clock_.Now());
    FRESHET_RETURN_IF_ERROR(
        communicator->Broadcast(std::span(data, static_cast<size_t>(size)), 0, timeout));
    if (on_bytes_) on_bytes_(size);
  }
  return absl::OkStatus();
}

absl::Status WeightBroadcaster::Broadcast(const Version& version,
                                          std::vector<WeightMember>& members, Answers& answers) {
  FRESHET_RETURN_IF_ERROR(ChooseGroup(members));
  const auto request = [&](size_t index) {
    Request message = MakeRequest(version);
    weights::v1::BroadcastGroup& group = *message.mutable_group();
    group.set_id(group_->id);
    group.set_rank(static_cast<int32_t>(index) + 1);
    group.set_size(static_cast<int32_t>(members.size()) + 1);
    group.set_rendezvous(group_->rendezvous);
    group.set_first(version.first);
    group.set_piece_bytes(PieceBytes(version.manifest));
    return message;
  };
  absl::Status sent;
  std::atomic<bool> failed = false;
  std::vector<Reply> replies;
  std::vector<MemberAnswer> ended;
  {
    const std::jthread sender([&] {
      sent = SendPieces(version);
      if (sent.ok()) return;
      failed = true;
      events_->Notify();
    });
    ended = Call(
        members, version.deadline - clock_.Now(),
        [&](const std::string& worker) { return failed || version.departed(worker); }, request,
        [group = group_](const absl::Status& status) {
          if (!status.ok()) group->GiveUp(StrCat("a member has failed: ", Message(status)));
        },
        replies);
  }
  std::vector<WeightMember> open;
  for (size_t i = 0; i < members.size(); ++i) {
    absl::Status& status = ended[i].status;
    if (status.ok() && !replies[i].prepared()) {
      status = absl::UnavailableError("it has not prepared the version");
    }
    // Others may have failed with the group, or were not waited for.
    if (status.ok() || absl::IsDataLoss(status) || absl::IsResourceExhausted(status)) {
      answers[members[i].worker] = ended[i];
    } else {
      open.push_back(members[i]);
      if (sent.ok()) sent = status;
    }
  }
  if (!sent.ok()) group_->GiveUp(Message(sent));
  members = std::move(open);
  return sent;
}

std::map<std::string, MemberAnswer> WeightBroadcaster::Send(
    const WeightManifest& manifest, const WeightBytes& bytes, std::vector<WeightMember> members,
    absl::Time deadline, const std::function<bool(const std::string&)>& departed) {
  Answers answers;
  Version version{manifest, *bytes, deadline, departed};
  for (int group = 1; group <= kGroupsPerVersion && !members.empty(); ++group) {
    Ask(version, members, answers);
    if (members.empty()) break;
    const absl::Status status = Broadcast(version, members, answers);
    if (status.ok()) continue;
    FRESHET_LOG(Warning) << "event=weight_group_failed version=" << manifest.policy.version
                         << " group=" << group << " left=" << members.size()
                         << " reason=" << LogQuoted(Message(status));
  }
  return answers;
}

}  // namespace freshet
