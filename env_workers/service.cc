#include "env_workers/service.h"

#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "env_workers/episode_session.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"
#include "services/runtime/bidi_reactor.h"

namespace freshet {
namespace {

using env::v1::EpisodeReply;
using env::v1::EpisodeRequest;

// Every request is answered by one reply, so that more than one waits only for a client that does
// not wait for its answers.
constexpr size_t kMaxQueuedReplies = 4;

EpisodeReply ToProto(const EnvironmentReply& reply) {
  EpisodeReply proto;
  proto.set_observation(reply.observation);
  proto.set_reward(reply.reward);
  proto.set_terminated(reply.terminated);
  proto.set_truncated(reply.truncated);
  proto.mutable_info()->insert(reply.info.begin(), reply.info.end());
  return proto;
}

}  // namespace

class EnvService::Stream final : public runtime::BidiReactor<EpisodeRequest, EpisodeReply> {
 public:
  explicit Stream(EnvService& service)
      : BidiReactor(kMaxQueuedReplies),
        service_(service),
        session_(service.environments_),
        last_message_(service.clock_.Now()) {}

  // Ends the stream when its client has said nothing since `before`.
  void EndIfIdle(absl::Time before) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      if (busy_ || last_message_ > before) return;
    }
    Finish(StatusOf(absl::StatusCode::kDeadlineExceeded, "the client said nothing for ",
                    absl::FormatDuration(service_.options_.idle_timeout)));
  }

 private:
  void OnOpen() override {
    Touch(false);
    const absl::Status admitted = service_.Admit(this);
    if (!admitted.ok()) Finish(admitted);
  }

  Reading OnMessage(const EpisodeRequest& message) override {
    if (message.request_case() == EpisodeRequest::kClose) {
      Finish(absl::OkStatus());
      return Reading::kContinue;
    }
    Touch(true);
    absl::StatusOr<EnvironmentReply> reply = Answer(message);
    Touch(false);
    if (!reply.ok()) {
      Finish(reply.status());
    } else if (Send(ToProto(*reply)) == runtime::SendResult::kFull) {
      Finish(ResourceExhausted("more than ", kMaxQueuedReplies,
                               " requests without waiting for their answers"));
    }
    return Reading::kContinue;
  }

  void OnEnd() override {
    CountAbandoned();
    service_.Leave(this);
  }

  absl::StatusOr<EnvironmentReply> Answer(const EpisodeRequest& message) {
    const absl::Time start = service_.clock_.Now();
    absl::StatusOr<EnvironmentReply> reply = InvalidArgument("the request is empty");
    if (message.request_case() == EpisodeRequest::kReset) {
      CountAbandoned();
      FRESHET_RETURN_IF_ERROR(service_.CheckAdmitting());
      const env::v1::Reset& reset = message.reset();
      reply = session_.Reset(reset.environment(), reset.seed(),
                             {reset.options().begin(), reset.options().end()});
    } else if (message.request_case() == EpisodeRequest::kStep) {
      reply = session_.Step(message.step().action());
      Count(reply);
    }
    if (service_.metrics_ != nullptr) {
      service_.metrics_->CountStep(session_.environment(), service_.clock_.Now() - start);
    }
    return reply;
  }

  void Count(const absl::StatusOr<EnvironmentReply>& reply) {
    if (service_.metrics_ == nullptr || session_.running()) return;
    const EpisodeOutcome outcome = !reply.ok()         ? EpisodeOutcome::kFailed
                                   : reply->terminated ? EpisodeOutcome::kTerminated
                                                       : EpisodeOutcome::kTruncated;
    service_.metrics_->CountEpisode(session_.environment(), outcome, session_.turns());
  }

  // An episode that runs still when its stream ends or another one begins.
  void CountAbandoned() {
    if (service_.metrics_ == nullptr || !session_.running()) return;
    service_.metrics_->CountEpisode(session_.environment(), EpisodeOutcome::kAbandoned,
                                    session_.turns());
  }

  void Touch(bool busy) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    busy_ = busy;
    last_message_ = service_.clock_.Now();
  }

  EnvService& service_;
  EpisodeSession session_;
  Mutex mu_;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time last_message_ ABSL_GUARDED_BY(mu_);
};

EnvService::EnvService(const EnvironmentRegistry& environments, const Clock& clock,
                       EnvMetrics* metrics, EnvServiceOptions options)
    : environments_(environments), clock_(clock), metrics_(metrics), options_(options) {
  idle_thread_ = std::jthread([this](std::stop_token stop) { Run(stop); });
}

EnvService::~EnvService() {
  idle_thread_.request_stop();
  {
    MutexLock lock(mu_);
    changed_.NotifyAll();
  }
  idle_thread_.join();
}

grpc::ServerBidiReactor<EpisodeRequest, EpisodeReply>* EnvService::Episode(
    grpc::CallbackServerContext*) {
  auto stream = std::make_shared<Stream>(*this);
  {
    MutexLock lock(mu_);
    streams_.insert(stream);
  }
  return Stream::Open(std::move(stream));
}

absl::Status EnvService::CheckAdmitting() const {
  MutexLock lock(mu_);
  if (admitting_) return absl::OkStatus();
  return absl::UnavailableError("this environment worker is draining; use another one");
}

absl::Status EnvService::Admit(Stream*) {
  FRESHET_RETURN_IF_ERROR(CheckAdmitting());
  const int64_t open = open_episodes();
  if (open > options_.max_episodes) {
    return ResourceExhausted("all of ", options_.max_episodes,
                             " episodes are taken; use another worker");
  }
  if (metrics_ != nullptr) metrics_->SetOpen(open);
  return absl::OkStatus();
}

void EnvService::Leave(Stream* stream) {
  MutexLock lock(mu_);
  std::erase_if(streams_, [stream](const auto& other) { return other.get() == stream; });
  if (metrics_ != nullptr) metrics_->SetOpen(static_cast<int64_t>(streams_.size()));
  changed_.NotifyAll();
}

grpc::ServerUnaryReactor* EnvService::ListEnvironments(grpc::CallbackServerContext* context,
                                                       const env::v1::ListEnvironmentsRequest*,
                                                       env::v1::ListEnvironmentsReply* reply) {
  for (const auto& [name, type] : environments_.types()) {
    env::v1::EnvironmentInfo* info = reply->add_environments();
    info->set_name(name);
    info->set_description(type.description);
  }
  reply->set_open_episodes(open_episodes());
  reply->set_max_episodes(options_.max_episodes);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

int64_t EnvService::open_episodes() const {
  MutexLock lock(mu_);
  return static_cast<int64_t>(streams_.size());
}

void EnvService::StopAdmitting() {
  MutexLock lock(mu_);
  admitting_ = false;
}

bool EnvService::AwaitNoEpisodes(absl::Time deadline) {
  MutexLock lock(mu_);
  while (!streams_.empty()) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mu_, left);
  }
  return true;
}

void EnvService::EndIdle() {
  std::vector<std::shared_ptr<Stream>> streams;
  {
    MutexLock lock(mu_);
    streams.assign(streams_.begin(), streams_.end());
  }
  const absl::Time before = clock_.Now() - options_.idle_timeout;
  for (const std::shared_ptr<Stream>& stream : streams) stream->EndIfIdle(before);
}

void EnvService::Run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    EndIdle();
    const absl::Time next = absl::Now() + absl::Seconds(1);
    MutexLock lock(mu_);
    while (!stop.stop_requested() && absl::Now() < next) changed_.WaitFor(mu_, next - absl::Now());
  }
}

}  // namespace freshet
