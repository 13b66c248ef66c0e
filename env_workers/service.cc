#include "env_workers/service.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/trace.h"
#include "env_workers/episode_session.h"
#include "services/runtime/bidi_reactor.h"

namespace freshet {
namespace {

using env::v1::EpisodeReply;
using env::v1::EpisodeRequest;

// Each request has one reply, so replies queue up only if a client does not wait for them.
constexpr size_t kMaxQueuedReplies = 4;

EpisodeReply ToProto(const EnvironmentReply& reply) {
  EpisodeReply proto;
  proto.set_observation(reply.observation);
  proto.set_reward(reply.reward);
  proto.set_terminated(reply.terminated);
  proto.set_truncated(reply.truncated);
  proto.set_invalid(reply.invalid);
  proto.mutable_info()->insert(reply.info.begin(), reply.info.end());
  return proto;
}

absl::Status Draining() {
  return absl::UnavailableError("this environment worker is draining; use another one");
}

// The traceparent of the call if its sample has lifecycle logging; else "".
std::string LoggedTrace(const grpc::CallbackServerContext& context) {
  const auto& headers = context.client_metadata();
  const auto found = headers.find(kTraceparentKey);
  if (found == headers.end()) return "";
  const std::optional<TraceContext> trace =
      ParseTraceparent({found->second.data(), found->second.size()});
  return trace.has_value() && trace->sampled ? trace->trace_id : "";
}

}  // namespace

class EnvService::Stream final : public runtime::BidiReactor<EpisodeRequest, EpisodeReply> {
 public:
  // `trace`: of the episodes' sample if it has lifecycle logging; else "".
  Stream(EnvService& service, std::string trace)
      : BidiReactor(kMaxQueuedReplies),
        service_(service),
        trace_(std::move(trace)),
        session_(service.environments_),
        last_message_(service.clock_.Now()) {}

  // Called when a waiting stream gets a slot. Processes the request that arrived meanwhile.
  void TakePlace() ABSL_LOCKS_EXCLUDED(mu_) {
    std::optional<EpisodeRequest> first;
    {
      MutexLock lock(mu_);
      place_ = Place::kRunning;
      last_message_ = service_.clock_.Now();
      first.swap(held_);
    }
    if (!first.has_value()) return;
    Take(*first);
    ResumeReading();
  }

  // Ends the stream if its client has been silent since `before`.
  void EndIfIdle(absl::Time before) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(mu_);
      if (place_ != Place::kRunning || busy_ || last_message_ > before) return;
    }
    Finish(StatusOf(absl::StatusCode::kDeadlineExceeded, "the client was silent for ",
                    absl::FormatDuration(service_.options_.idle_timeout)));
  }

 private:
  void OnOpen() override {
    Touch(false);
    const absl::StatusOr<Place> place = service_.Admit(this);
    if (!place.ok()) {
      Finish(place.status());
      return;
    }
    MutexLock lock(mu_);
    // A leaving stream may have passed on its slot already.
    if (place_ == Place::kNone) place_ = *place;
  }

  Reading OnMessage(const EpisodeRequest& message) override {
    {
      MutexLock lock(mu_);
      if (place_ == Place::kNone) return Reading::kContinue;  // refused but not yet ended
      if (place_ == Place::kWaiting) {
        held_ = message;
        return Reading::kPause;
      }
    }
    Take(message);
    return Reading::kContinue;
  }

  // Called by the reading thread, or by the thread of the stream that passed on its slot.
  void Take(const EpisodeRequest& message) ABSL_LOCKS_EXCLUDED(mu_, work_mu_) {
    MutexLock lock(work_mu_);
    if (ended_) return;
    if (message.request_case() == EpisodeRequest::kClose) {
      Finish(absl::OkStatus());
      return;
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
  }

  void OnEnd() override {
    {
      MutexLock lock(work_mu_);
      CountAbandoned();
      ended_ = true;
    }
    service_.Leave(this);
  }

  absl::StatusOr<EnvironmentReply> Answer(const EpisodeRequest& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_mu_) {
    const absl::Time start = service_.clock_.Now();
    absl::StatusOr<EnvironmentReply> reply = InvalidArgument("the request is empty");
    if (message.request_case() == EpisodeRequest::kReset) {
      CountAbandoned();
      FRESHET_RETURN_IF_ERROR(service_.CheckAdmitting());
      const env::v1::Reset& reset = message.reset();
      reply = session_.Reset(reset.environment(), reset.seed(),
                             {reset.options().begin(), reset.options().end()});
      if (!trace_.empty() && reply.ok()) {
        FRESHET_LOG(Info) << "event=episode_begins trace=" << trace_
                          << " environment=" << reset.environment() << " seed=" << reset.seed();
      }
    } else if (message.request_case() == EpisodeRequest::kStep) {
      reply = session_.Step(message.step().action());
      Count(reply);
    }
    if (service_.metrics_ != nullptr) {
      service_.metrics_->CountStep(session_.environment(), service_.clock_.Now() - start);
    }
    return reply;
  }

  void Count(const absl::StatusOr<EnvironmentReply>& reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_mu_) {
    if (session_.running()) return;
    CountEnd(!reply.ok()         ? EpisodeOutcome::kFailed
             : reply->terminated ? EpisodeOutcome::kTerminated
                                 : EpisodeOutcome::kTruncated);
  }

  // Counts an episode that is still running when its stream ends or another episode begins.
  void CountAbandoned() ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_mu_) {
    if (session_.running()) CountEnd(EpisodeOutcome::kAbandoned);
  }

  void CountEnd(EpisodeOutcome outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(work_mu_) {
    if (service_.metrics_ != nullptr) {
      service_.metrics_->CountEpisode(session_.environment(), outcome, session_.turns());
    }
    if (trace_.empty()) return;
    FRESHET_LOG(Info) << "event=episode_ended trace=" << trace_ << " outcome=" << Name(outcome)
                      << " turns=" << session_.turns();
  }

  void Touch(bool busy) ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(mu_);
    busy_ = busy;
    last_message_ = service_.clock_.Now();
  }

  EnvService& service_;
  const std::string trace_;
  Mutex work_mu_;  // acquired before mu_
  EpisodeSession session_ ABSL_GUARDED_BY(work_mu_);
  bool ended_ ABSL_GUARDED_BY(work_mu_) = false;
  Mutex mu_;
  Place place_ ABSL_GUARDED_BY(mu_) = Place::kNone;
  std::optional<EpisodeRequest> held_ ABSL_GUARDED_BY(mu_);  // arrived while waiting
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
    grpc::CallbackServerContext* context) {
  auto stream = std::make_shared<Stream>(*this, LoggedTrace(*context));
  {
    MutexLock lock(mu_);
    streams_[stream.get()] = Entry{stream, Place::kNone, clock_.Now()};
  }
  return Stream::Open(std::move(stream));
}

absl::Status EnvService::CheckAdmitting() const {
  MutexLock lock(mu_);
  if (admitting_) return absl::OkStatus();
  return Draining();
}

absl::StatusOr<EnvService::Place> EnvService::Admit(Stream* stream) {
  MutexLock lock(mu_);
  if (!admitting_) return Draining();
  Entry& entry = streams_.at(stream);
  if (running_ < options_.max_episodes) {
    entry.place = Place::kRunning;
    ++running_;
    UpdateOpenMetric();
  } else if (static_cast<int64_t>(waiting_.size()) < options_.max_waiting) {
    entry.place = Place::kWaiting;
    waiting_.push_back(stream);
  } else {
    return Full();
  }
  return entry.place;
}

absl::Status EnvService::Full() const {
  return ResourceExhausted("all of ", options_.max_episodes,
                           " episode slots are in use; use another worker");
}

// A free slot goes to the stream that has waited longest.
void EnvService::Leave(Stream* stream) {
  std::shared_ptr<Stream> next;
  {
    MutexLock lock(mu_);
    const auto found = streams_.find(stream);
    if (found == streams_.end()) return;
    const Place place = found->second.place;
    streams_.erase(found);
    if (place == Place::kWaiting) std::erase(waiting_, stream);
    if (place == Place::kRunning) {
      --running_;
      if (!waiting_.empty()) {
        Entry& entry = streams_.at(waiting_.front());
        waiting_.pop_front();
        entry.place = Place::kRunning;
        ++running_;
        next = entry.stream;
      }
      UpdateOpenMetric();
    }
    changed_.NotifyAll();
  }
  if (next != nullptr) next->TakePlace();
}

std::vector<std::shared_ptr<EnvService::Stream>> EnvService::TakeWaiting(absl::Time before) {
  std::vector<std::shared_ptr<Stream>> taken;
  while (!waiting_.empty()) {
    Entry& entry = streams_.at(waiting_.front());
    if (entry.since > before) break;
    entry.place = Place::kNone;
    taken.push_back(entry.stream);
    waiting_.pop_front();
  }
  return taken;
}

void EnvService::UpdateOpenMetric() {
  if (metrics_ != nullptr) metrics_->SetOpen(running_);
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
  return running_;
}

int64_t EnvService::waiting_episodes() const {
  MutexLock lock(mu_);
  return static_cast<int64_t>(waiting_.size());
}

void EnvService::StopAdmitting() {
  std::vector<std::shared_ptr<Stream>> refused;
  {
    MutexLock lock(mu_);
    admitting_ = false;
    refused = TakeWaiting(absl::InfiniteFuture());
  }
  for (const std::shared_ptr<Stream>& stream : refused) stream->Finish(Draining());
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
  const absl::Time now = clock_.Now();
  std::vector<std::shared_ptr<Stream>> refused;
  std::vector<std::shared_ptr<Stream>> streams;
  {
    MutexLock lock(mu_);
    refused = TakeWaiting(now - options_.max_wait);
    for (const auto& [stream, entry] : streams_) streams.push_back(entry.stream);
  }
  for (const std::shared_ptr<Stream>& stream : refused) stream->Finish(Full());
  for (const std::shared_ptr<Stream>& stream : streams) {
    stream->EndIfIdle(now - options_.idle_timeout);
  }
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
