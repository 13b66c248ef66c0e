#include "rollout/environment/grpc/environment_stream.h"

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/str_cat.h"
#include "base/trace.h"
#include "services/runtime/status.h"

namespace freshet {
namespace {

EpisodeAnswer AnswerOf(const env::v1::EpisodeReply& reply) {
  EpisodeAnswer answer{reply.observation(), reply.reward(), reply.terminated(), reply.truncated()};
  for (const env::v1::Message& message : reply.messages()) {
    answer.messages.push_back(
        {message.role(), message.content(), message.name(), message.tool_call_id()});
  }
  answer.tools.assign(reply.tools().begin(), reply.tools().end());
  answer.invalid = reply.invalid();
  answer.new_context = reply.new_context();
  answer.cost = reply.cost();
  return answer;
}

constexpr char kMethod[] = "/freshet.env.v1.EnvService/Episode";
// gRPC's own error for a message above the limit of the channel, which has no code of its own. The
// case of its first letter differs between versions of gRPC.
constexpr char kTooLarge[] = "eceived message larger than max";

// Error for a stream that ended without an answer, which may have status OK.
absl::Status EndOf(const grpc::Status& status) {
  if (status.ok()) return absl::UnavailableError("the environment worker ended the episode");
  // RESOURCE_EXHAUSTED means that a worker is full, and is tried again for long.
  if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
      status.error_message().find(kTooLarge) != std::string::npos) {
    return Internal("the environment's answer is too large: ", status.error_message());
  }
  return runtime::GrpcToStatus(status);
}

}  // namespace

std::shared_ptr<EnvironmentStream> EnvironmentStream::Start(std::shared_ptr<EnvironmentStub> stub,
                                                            env::v1::EpisodeRequest first,
                                                            const std::string& traceparent,
                                                            absl::Duration timeout,
                                                            OnAnswer on_answer, OnEnd on_end) {
  std::shared_ptr<EnvironmentStream> stream(
      new EnvironmentStream(std::move(stub), std::move(on_answer), std::move(on_end)));
  stream->self_ = stream;
  stream->context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  if (!traceparent.empty()) stream->context_.AddMetadata(kTraceparentKey, traceparent);
  stream->stub_->PrepareBidiStreamingCall(&stream->context_, kMethod, {}, stream.get());
  stream->AddHold();
  {
    MutexLock lock(stream->mu_);
    stream->waiting_ = true;
    stream->Write(std::move(first));
  }
  stream->StartRead(&stream->incoming_);
  stream->StartCall();
  return stream;
}

void EnvironmentStream::Write(env::v1::EpisodeRequest request) {
  writing_ = true;
  outgoing_ = std::move(request);
  StartWrite(&outgoing_);
}

void EnvironmentStream::ReleaseHold() {
  if (std::exchange(held_, false)) RemoveHold();
}

void EnvironmentStream::Send(env::v1::EpisodeRequest request) {
  OnAnswer refuse;
  absl::Status why;
  {
    MutexLock lock(mu_);
    if (!on_answer_) return;
    if (ended_.has_value()) {
      refuse = on_answer_;
      why = *ended_;
    } else {
      waiting_ = true;
      // Without the hold the stream is ending, and OnDone answers.
      if (!held_) return;
      if (writing_) {
        queued_ = std::move(request);
      } else {
        Write(std::move(request));
      }
    }
  }
  if (refuse) refuse(why);
}

void EnvironmentStream::End() {
  MutexLock lock(mu_);
  on_answer_ = nullptr;
  if (!held_) return;
  if (waiting_) {
    context_.TryCancel();
  } else if (writing_) {
    // The answer can arrive before the write completion of its request.
    closing_ = true;
    return;
  } else {
    WriteClose();
  }
  ReleaseHold();
}

void EnvironmentStream::Cancel() {
  End();
  context_.TryCancel();
}

void EnvironmentStream::WriteClose() {
  outgoing_.mutable_close();
  writing_ = true;
  StartWriteLast(&outgoing_, grpc::WriteOptions());
}

void EnvironmentStream::OnReadDone(bool ok) {
  OnAnswer answer;
  env::v1::EpisodeReply reply;
  const bool readable =
      ok && grpc::SerializationTraits<env::v1::EpisodeReply>::Deserialize(&incoming_, &reply).ok();
  {
    MutexLock lock(mu_);
    if (!ok) {
      ReleaseHold();
      return;  // OnDone reports the error
    }
    if (!readable) {
      context_.TryCancel();
      ReleaseHold();
    }
    if (!std::exchange(waiting_, false)) {
      context_.TryCancel();  // unsolicited answer: protocol violation
    } else {
      answer = on_answer_;
    }
  }
  if (!readable) {
    if (answer) answer(Internal("the environment's answer cannot be read: is its text UTF-8?"));
    return;
  }
  StartRead(&incoming_);
  if (answer) answer(AnswerOf(reply));
}

void EnvironmentStream::OnWriteDone(bool ok) {
  MutexLock lock(mu_);
  writing_ = false;
  if (!held_) return;
  if (closing_) {
    if (ok) WriteClose();
    ReleaseHold();
    return;
  }
  if (!ok || !queued_.has_value()) return;
  env::v1::EpisodeRequest next = *std::move(queued_);
  queued_.reset();
  Write(std::move(next));
}

void EnvironmentStream::OnDone(const grpc::Status& status) {
  std::shared_ptr<EnvironmentStream> self = std::move(self_);
  const OnEnd on_end = on_end_;
  OnAnswer answer;
  const absl::Status why = EndOf(status);
  {
    MutexLock lock(mu_);
    ended_ = why;
    if (waiting_) answer = on_answer_;
  }
  if (answer) answer(why);
  self.reset();
  on_end();
}

}  // namespace freshet
