// The part of WorkerAgent that maintains registration and heartbeat.
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/backoff.h"
#include "base/log.h"
#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "services/runtime/error_details.h"
#include "services/worker/worker_agent.h"

namespace freshet::runtime {
namespace {

using cluster::v1::Directive;
using cluster::v1::RegisterReply;
using cluster::v1::WorkerStatus;

// Redirects to a leader followed without a pause.
constexpr int kMaxRedirects = 3;

// The duration that the controller requests, clamped; `fallback` if it is unset.
absl::Duration Sane(const google::protobuf::Duration& duration, absl::Duration fallback) {
  const absl::Duration value = FromDuration(duration);
  if (value <= absl::ZeroDuration()) return fallback;
  return std::clamp(value, absl::Milliseconds(1), absl::Minutes(10));
}

cluster::v1::LogLine ToProto(const RingLine& line) {
  cluster::v1::LogLine proto;
  *proto.mutable_time() =
      google::protobuf::util::TimeUtil::NanosecondsToTimestamp(absl::ToUnixNanos(line.time));
  proto.set_level(LogSeverityName(line.severity));
  proto.set_text(ValidUtf8(line.text));
  return proto;
}

std::string LeaderOf(const absl::Status& status) {
  const ErrorDetails details = DetailsOf(status);
  const auto found = details.metadata.find(kLeaderMetadata);
  return found == details.metadata.end() ? "" : found->second;
}

}  // namespace

void WorkerAgent::Control() {
  Backoff backoff(options_.backoff);
  size_t next = 0;
  std::string leader;
  int redirects = 0;
  std::string last_error;
  while (!ending()) {
    CheckContact();
    const std::string address = leader.empty() ? options_.controllers[next] : leader;
    beaten_ = false;
    const absl::Status status = Session(address);
    if (ending()) break;
    if (beaten_) {
      backoff.Reset();
      redirects = 0;
      last_error.clear();
    } else if (leader.empty()) {
      next = (next + 1) % options_.controllers.size();
    }
    if (Message(status) != last_error) {
      last_error = Message(status);
      FRESHET_LOG(Warning) << "event=controller_lost controller=" << address
                           << " error=" << LogQuoted(last_error);
    }
    leader = LeaderOf(status);
    const bool redirected = !leader.empty() && leader != address && ++redirects <= kMaxRedirects;
    if (!redirected && !Pause(backoff.Next())) break;
  }
  MutexLock lock(mu_);
  control_ended_ = true;
  cv_.NotifyAll();
}

absl::Status WorkerAgent::Session(const std::string& address) {
  FRESHET_ASSIGN_OR_RETURN(const std::shared_ptr<Stub> stub, stubs_.Get(address));
  const absl::Time asked = clock_.Now();
  const absl::StatusOr<RegisterReply> registered = Register(*stub);
  if (absl::IsAlreadyExists(registered.status())) EndWork(Message(registered.status()));
  FRESHET_ASSIGN_OR_RETURN(const RegisterReply reply, registered);
  interval_ = Sane(reply.heartbeat_interval(), absl::Seconds(1));
  std::string worker = StrCat(name(), "#", reply.epoch());
  {
    MutexLock lock(mu_);
    epoch_ = reply.epoch();
    worker_ = worker;
    controller_ = address;
    stub_ = stub;
    lost_after_ = Sane(reply.lost_after(), absl::Seconds(2));
    last_contact_ = asked;
    connected_ = true;
    cv_.NotifyAll();
  }
  FRESHET_LOG(Info) << "event=registered member=" << worker << " controller=" << address;
  queue_.AddEpoch(std::move(worker));
  const absl::Status ended = Beat(*stub);
  {
    MutexLock lock(mu_);
    connected_ = false;
  }
  if (absl::IsFailedPrecondition(ended)) Fence(Message(ended));
  return ended;
}

absl::StatusOr<RegisterReply> WorkerAgent::Register(Stub& stub) {
  cluster::v1::RegisterRequest request = options_.identity;
  request.clear_assignment_ids();
  for (std::string& id : source_.AssignmentIds()) request.add_assignment_ids(std::move(id));
  RegisterReply reply;
  // No longer than the leases may still hold, but long enough to get a reply.
  const absl::Duration least = std::min(absl::Milliseconds(500), options_.call_timeout);
  FRESHET_RETURN_IF_ERROR(stubs_.Run(
      std::clamp(UntilLost(), least, options_.call_timeout),
      [&](grpc::ClientContext& context) { return stub.Register(&context, request, &reply); }));
  if (reply.epoch() <= 0) return Internal("the controller gave the epoch ", reply.epoch());
  return reply;
}

absl::Status WorkerAgent::Beat(Stub& stub) {
  const std::shared_ptr<HeartbeatStream> stream = HeartbeatStream::Start(
      std::make_unique<grpc::ClientContext>(),
      [&](auto* context, auto* reactor) { stub.async()->Heartbeat(context, reactor); });
  {
    MutexLock lock(mu_);
    if (stopping_) return absl::CancelledError("the agent is stopping");
    stream_ = stream;
  }
  absl::Status status = BeatOn(*stream);
  {
    MutexLock lock(mu_);
    stream_.reset();
  }
  if (status.ok() || absl::IsOutOfRange(status)) {
    status = absl::UnavailableError("the controller ended the heartbeat");
  }
  return status;
}

absl::Status WorkerAgent::BeatOn(HeartbeatStream& stream) {
  absl::Time next = absl::Now();
  int64_t sequence = 0;
  while (true) {
    bool now = false;
    bool leaving = false;
    {
      MutexLock lock(mu_);
      if (stopping_) return absl::CancelledError("the agent is stopping");
      if (epoch_ == 0) return absl::FailedPreconditionError("fenced");
      now = std::exchange(beat_now_, false);
      leaving = leaving_;
    }
    if (now || leaving || absl::Now() >= next) {
      CheckContact();
      if (worker().empty()) return absl::AbortedError("the controller was not reached in time");
      if (const absl::Status sent = SendStatus(stream, ++sequence); !sent.ok()) {
        TakeRest(stream);
        return sent;
      }
      beaten_ = beaten_ || sequence > 1;
      next = absl::Now() + interval_;
    }
    if (leaving) {
      stream.WritesDone();
      return stream.Finish(options_.call_timeout);
    }
    absl::StatusOr<Directive> directive = stream.Read(next - absl::Now());
    if (directive.ok()) {
      {
        MutexLock lock(mu_);
        last_contact_ = clock_.Now();
      }
      if (!queue_.AddDirective(*std::move(directive))) {
        return ResourceExhausted("more than ", options_.max_pending_directives,
                                 " directives wait for the worker");
      }
      beaten_ = true;
    } else if (stream.done()) {
      const absl::Status ended = stream.Finish(absl::ZeroDuration());
      return ended.ok() ? absl::OutOfRangeError("the stream has ended") : ended;
    }
  }
}

void WorkerAgent::TakeRest(HeartbeatStream& stream) {
  while (stream.done()) {
    absl::StatusOr<Directive> directive = stream.Read(absl::ZeroDuration());
    if (!directive.ok() || !queue_.AddDirective(*std::move(directive))) return;
  }
}

absl::Status WorkerAgent::SendStatus(HeartbeatStream& stream, int64_t sequence) {
  WorkerStatus status;
  source_.FillStatus(status);
  status.set_worker(name());
  status.set_sequence(sequence);
  absl::Duration limit;
  {
    MutexLock lock(mu_);
    status.set_epoch(epoch_);
    limit = lost_after_;
  }
  if (unsent_log_.log().empty() && log_ != nullptr) {
    LogRing::Taken taken = log_->Take();
    for (const RingLine& line : taken.lines) *unsent_log_.add_log() = ToProto(line);
    unsent_log_.set_log_lines_lost(unsent_log_.log_lines_lost() + taken.lost);
  }
  *status.mutable_log() = unsent_log_.log();
  status.set_log_lines_lost(unsent_log_.log_lines_lost());
  const absl::Time sent = clock_.Now();
  FRESHET_RETURN_IF_ERROR(stream.Write(status, limit));
  unsent_log_.Clear();
  MutexLock lock(mu_);
  last_contact_ = sent;
  return absl::OkStatus();
}

void WorkerAgent::Fence(const std::string& reason) {
  {
    MutexLock lock(mu_);
    if (epoch_ == 0) return;
    epoch_ = 0;
    worker_.clear();
    connected_ = false;
  }
  FRESHET_LOG(Warning) << "event=fenced member=" << name() << " reason=" << LogQuoted(reason);
  queue_.AddFenced(reason);
}

// Another process took over, so work here would only be refused.
void WorkerAgent::EndWork(const std::string& reason) {
  for (std::string& id : source_.AssignmentIds()) {
    cluster::v1::Directive directive;
    directive.mutable_unassign()->set_assignment_id(std::move(id));
    directive.mutable_unassign()->set_reason(reason);
    if (!queue_.AddDirective(std::move(directive))) return;  // the next call adds the rest
  }
}

void WorkerAgent::CheckContact() {
  absl::Duration silent;
  {
    MutexLock lock(mu_);
    silent = clock_.Now() - last_contact_;
    if (epoch_ == 0 || silent <= lost_after_) return;
  }
  Fence(StrCat("the controller was not reached for ", absl::FormatDuration(silent)));
}

absl::Duration WorkerAgent::UntilLost() const {
  MutexLock lock(mu_);
  if (epoch_ == 0) return absl::InfiniteDuration();
  return last_contact_ + lost_after_ - clock_.Now();
}

bool WorkerAgent::Pause(absl::Duration wait) {
  const absl::Time end = absl::Now() + wait;
  while (true) {
    CheckContact();
    // Wake up in time for CheckContact.
    const absl::Duration most = std::clamp(UntilLost(), absl::Milliseconds(1), absl::Seconds(1));
    const absl::Duration left = end - absl::Now();
    if (left <= absl::ZeroDuration()) {
      if (ending()) return false;
      // Wait for a slow sink, because further directives would not fit.
      if (queue_.AwaitRoom(most)) return true;
      continue;
    }
    MutexLock lock(mu_);
    if (stopping_ || leaving_) return false;
    cv_.WaitFor(mu_, std::min(left, most));
  }
}

}  // namespace freshet::runtime
