#include "weights/grpc/weight_broadcaster.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <stop_token>
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
#include "weights/transfer_time.h"

namespace freshet {
namespace {

// A group may fail twice in a version; after that the caller has other ways.
constexpr int kGroupsPerVersion = 3;

// Whether it is the answer of a member that has taken part to the end.
bool IsFinal(const absl::Status& status) { return status.ok() || absl::IsDataLoss(status); }

}  // namespace

// Shared with the ends of calls that were abandoned.
struct WeightBroadcaster::Group {
  // Why it has failed: the first reason.
  struct Failure {
    std::string reason;
    std::string worker;  // whose call has failed; "": the trainer's part
  };

  const std::string id = runtime::RandomId();
  std::string rendezvous;
  std::vector<WeightMember> members;  // ranks 1, 2, ...
  Mutex mu;
  std::stop_source connecting ABSL_GUARDED_BY(mu);
  std::optional<Failure> failure ABSL_GUARDED_BY(mu);
  std::shared_ptr<Communicator> communicator ABSL_GUARDED_BY(mu);  // null: not connected

  // Does not block.
  void Fail(const std::string& reason, const std::string& worker = "") ABSL_LOCKS_EXCLUDED(mu) {
    MutexLock lock(mu);
    if (!failure.has_value()) failure = Failure{reason, worker};
  }
  std::optional<Failure> failed() ABSL_LOCKS_EXCLUDED(mu) {
    MutexLock lock(mu);
    return failure;
  }
  // Ends the trainer's part of a group that has failed.
  void Abort() ABSL_LOCKS_EXCLUDED(mu) {
    std::shared_ptr<Communicator> connected;
    std::optional<std::stop_source> source;
    std::string reason;
    {
      MutexLock lock(mu);
      if (!failure.has_value()) return;
      reason = failure->reason;
      source.emplace(connecting);
      connected = communicator;
    }
    source->request_stop();
    if (connected != nullptr) connected->Abort(reason);
  }
  bool Works() ABSL_LOCKS_EXCLUDED(mu) {
    std::shared_ptr<Communicator> connected;
    {
      MutexLock lock(mu);
      if (failure.has_value()) return false;
      connected = communicator;
    }
    return connected != nullptr && connected->error().ok();
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
      pause_(options_.retry) {}

WeightBroadcaster::~WeightBroadcaster() { LeaveGroup("the trainer has left the job"); }

// The communicator is closed on this thread: abandoned calls may hold the group longer.
void WeightBroadcaster::LeaveGroup(const std::string& reason) {
  if (group_ == nullptr) return;
  group_->Fail(reason);
  group_->Abort();
  std::shared_ptr<Communicator> connected;
  {
    MutexLock lock(group_->mu);
    connected = std::exchange(group_->communicator, nullptr);
  }
  group_ = nullptr;
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
  return request;
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

absl::Status WeightBroadcaster::ChooseGroup(const std::vector<WeightMember>& members) {
  if (group_ != nullptr && group_->members == members && group_->Works()) {
    group_->rendezvous.clear();  // they belong to it already
    return absl::OkStatus();
  }
  LeaveGroup("its members have changed");
  FRESHET_ASSIGN_OR_RETURN(std::string rendezvous, options_.backend->NewRendezvous());
  group_ = std::make_shared<Group>();
  group_->members = members;
  group_->rendezvous = std::move(rendezvous);
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
    place.timeout = std::min(Patience(version), version.deadline - clock_.Now());
    if (place.timeout <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("no time left to connect the group");
    }
    FRESHET_ASSIGN_OR_RETURN(communicator, options_.backend->Connect(place));
    MutexLock lock(group_->mu);
    if (group_->failure.has_value()) return absl::AbortedError("the group was aborted");
    group_->communicator = communicator;
  }
  const int64_t total = version.manifest.total_bytes;
  const int64_t piece = PieceBytes(version.manifest);
  for (int64_t at = version.first; at < total; at += piece) {
    const int64_t size = std::min(piece, total - at);
    // The root of a broadcast only reads.
    auto* const data = const_cast<std::byte*>(version.bytes.data()) + at;
    const absl::Duration timeout =
        std::min(StepTime(Patience(version), size), version.deadline - clock_.Now());
    FRESHET_RETURN_IF_ERROR(
        communicator->Broadcast(std::span(data, static_cast<size_t>(size)), 0, timeout));
    if (hooks_.on_bytes) hooks_.on_bytes(size);
  }
  return absl::OkStatus();
}

absl::Status WeightBroadcaster::Broadcast(const Version& version,
                                          std::vector<WeightMember>& members, Answers& answers,
                                          std::string* culprit) {
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
  std::vector<Reply> replies;
  std::vector<MemberAnswer> ended;
  {
    const std::jthread sender([&] {
      const absl::Status sent = SendPieces(version);
      if (sent.ok()) return;
      group_->Fail(Message(sent));
      events_->Notify();
    });
    ended = Call(
        members, version.deadline - clock_.Now(),
        [&](const std::string& worker) {
          // The one fails with the other: wakes the sender, and waits for no member.
          if (!group_->failed().has_value()) return version.departed(worker);
          group_->Abort();
          return true;
        },
        request,
        [group = group_](size_t index, const absl::Status& status) {
          const std::string& worker = group->members[index].worker;
          if (!IsFinal(status)) group->Fail(StrCat(worker, ": ", Message(status)), worker);
        },
        replies);
    for (size_t i = 0; i < members.size(); ++i) {
      if (ended[i].status.ok() && !replies[i].prepared()) {
        ended[i].status = absl::UnavailableError("it has not prepared the version");
      }
      const std::string& worker = members[i].worker;
      if (!IsFinal(ended[i].status)) {
        group_->Fail(StrCat(worker, ": ", Message(ended[i].status)), worker);
      }
    }
    group_->Abort();  // if it has failed, before the sender is waited for
  }
  std::vector<WeightMember> left;
  for (size_t i = 0; i < members.size(); ++i) {
    if (IsFinal(ended[i].status)) {
      answers[members[i].worker] = {ended[i].status, clock_.Now() - version.start};
    } else {
      left.push_back(members[i]);
    }
  }
  members = std::move(left);
  const std::optional<Group::Failure> failure = group_->failed();
  if (!failure.has_value()) return absl::OkStatus();
  *culprit = failure->worker;
  LeaveGroup(failure->reason);
  return absl::UnavailableError(failure->reason);
}

std::map<std::string, MemberAnswer> WeightBroadcaster::Send(
    const WeightManifest& manifest, const WeightBytes& bytes, std::vector<WeightMember> members,
    absl::Time deadline, const std::function<bool(const std::string&)>& departed) {
  Answers answers;
  const absl::Time start = clock_.Now();
  if (start < next_try_) return answers;
  std::erase_if(left_out_, [start](const auto& entry) { return entry.second <= start; });
  std::erase_if(members, [this](const auto& member) { return left_out_.contains(member.worker); });
  Version version{manifest, *bytes, start, deadline, departed};
  absl::Status status;
  for (int group = 1; group <= kGroupsPerVersion && !members.empty(); ++group) {
    // Half of the time is for other ways.
    if (clock_.Now() - start > (deadline - start) / 2) break;
    Ask(version, members, answers);
    if (members.empty()) break;
    std::string culprit;
    status = Broadcast(version, members, answers, &culprit);
    if (status.ok()) continue;
    if (hooks_.on_group_failed) hooks_.on_group_failed();
    FRESHET_LOG(Warning) << "event=weight_group_failed version=" << manifest.policy.version
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
