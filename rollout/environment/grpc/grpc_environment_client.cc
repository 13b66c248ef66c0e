#include "rollout/environment/grpc/grpc_environment_client.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "freshet/env/v1/env_service.grpc.pb.h"
#include "rollout/environment/grpc/environment_stream.h"

namespace freshet {

// Answers not yet taken, at most one per open episode, and the streams that have not ended.
struct GrpcEnvironmentClient::Inbox {
  Mutex mu;
  CondVar arrived;
  CondVar ended;
  std::vector<EpisodeEvent> events ABSL_GUARDED_BY(mu);
  std::map<int64_t, std::weak_ptr<EnvironmentStream>> streams ABSL_GUARDED_BY(mu);
  int64_t streams_started ABSL_GUARDED_BY(mu) = 0;

  void Put(int64_t episode, absl::StatusOr<EpisodeAnswer> answer) ABSL_LOCKS_EXCLUDED(mu) {
    MutexLock lock(mu);
    events.push_back({episode, std::move(answer)});
    arrived.NotifyAll();
  }
  void Remove(int64_t stream) ABSL_LOCKS_EXCLUDED(mu) {
    MutexLock lock(mu);
    streams.erase(stream);
    ended.NotifyAll();
  }
};

struct GrpcEnvironmentClient::Worker {
  std::string address;
  std::shared_ptr<EnvironmentStub> stub;  // null until the first episode
  int64_t open = 0;
  uint64_t last_pick = 0;
  absl::Time avoid_until = absl::InfinitePast();
};

GrpcEnvironmentClient::GrpcEnvironmentClient(ChannelMaker make_channel, const Clock& clock,
                                             GrpcEnvironmentClientOptions options)
    : make_channel_(std::move(make_channel)),
      clock_(clock),
      options_(options),
      inbox_(std::make_shared<Inbox>()) {}

// A channel's last reference must not be dropped on a gRPC thread: at process exit, that would
// destroy the completion queue that the thread polls.
GrpcEnvironmentClient::~GrpcEnvironmentClient() {
  open_.clear();
  std::vector<std::shared_ptr<EnvironmentStream>> streams;
  {
    MutexLock lock(inbox_->mu);
    for (const auto& [number, stream] : inbox_->streams) streams.push_back(stream.lock());
  }
  for (const auto& stream : streams) {
    if (stream != nullptr) stream->Cancel();
  }
  streams.clear();
  MutexLock lock(inbox_->mu);
  while (!inbox_->streams.empty()) inbox_->ended.WaitFor(inbox_->mu, absl::Seconds(1));
}

void GrpcEnvironmentClient::SetAddresses(std::vector<std::string> addresses) {
  MutexLock lock(mu_);
  new_addresses_ = std::move(addresses);
  addresses_changed_ = true;
}

int64_t GrpcEnvironmentClient::open_episodes() const {
  MutexLock lock(mu_);
  return num_open_;
}

void GrpcEnvironmentClient::TakeAddresses() {
  std::vector<std::string> addresses;
  {
    MutexLock lock(mu_);
    if (!std::exchange(addresses_changed_, false)) return;
    addresses = new_addresses_;
  }
  std::erase_if(workers_, [&](const auto& entry) {
    return std::find(addresses.begin(), addresses.end(), entry.first) == addresses.end();
  });
  for (const std::string& address : addresses) {
    std::unique_ptr<Worker>& worker = workers_[address];
    if (worker != nullptr) continue;
    worker = std::make_unique<Worker>();
    worker->address = address;
  }
}

GrpcEnvironmentClient::Worker* GrpcEnvironmentClient::PickWorker() {
  const absl::Time now = clock_.Now();
  Worker* best = nullptr;
  const auto rank = [now](const Worker& worker) {
    const bool avoid = worker.avoid_until > now;
    return std::make_tuple(avoid, worker.open, worker.last_pick);
  };
  for (auto& [address, worker] : workers_) {
    if (best == nullptr || rank(*worker) < rank(*best)) best = worker.get();
  }
  if (best != nullptr) best->last_pick = ++picks_;
  return best;
}

void GrpcEnvironmentClient::Expect(int64_t episode, Open& open) {
  open.waiting = true;
  open.deadline = clock_.Now() + options_.step_timeout;
  deadlines_.emplace(open.deadline, episode);
}

void GrpcEnvironmentClient::Reset(int64_t episode, const EpisodeStart& start) {
  TakeAddresses();
  Close(episode);
  Open& open = open_[episode];
  {
    MutexLock lock(mu_);
    ++num_open_;
  }
  Expect(episode, open);
  Worker* worker = PickWorker();
  if (worker == nullptr) {
    return inbox_->Put(episode, absl::UnavailableError("no environment worker is known"));
  }
  open.address = worker->address;
  ++worker->open;
  if (worker->stub == nullptr) {
    const auto channel = make_channel_(worker->address);
    if (!channel.ok()) return inbox_->Put(episode, channel.status());
    worker->stub = std::make_shared<EnvironmentStub>(*channel);
  }
  env::v1::EpisodeRequest request;
  request.mutable_reset()->set_environment(start.environment);
  request.mutable_reset()->set_seed(start.seed);
  request.mutable_reset()->mutable_options()->insert(start.options.begin(), start.options.end());
  int64_t number = 0;
  {
    MutexLock lock(inbox_->mu);
    number = ++inbox_->streams_started;
    inbox_->streams[number];
  }
  const std::shared_ptr<EnvironmentStream> stream = EnvironmentStream::Start(
      worker->stub, std::move(request), start.traceparent, options_.episode_timeout,
      [inbox = inbox_, episode](absl::StatusOr<EpisodeAnswer> answer) {
        inbox->Put(episode, std::move(answer));
      },
      [inbox = inbox_, number] { inbox->Remove(number); });
  open.stream = {stream.get(), [stream](EnvironmentStream*) { stream->End(); }};
  MutexLock lock(inbox_->mu);
  // The stream may have ended already.
  if (const auto found = inbox_->streams.find(number); found != inbox_->streams.end()) {
    found->second = stream;
  }
}

void GrpcEnvironmentClient::Step(int64_t episode, std::string action) {
  const auto found = open_.find(episode);
  if (found == open_.end()) return;
  Expect(episode, found->second);
  env::v1::EpisodeRequest request;
  request.mutable_step()->set_action(std::move(action));
  found->second.stream->Send(std::move(request));
}

void GrpcEnvironmentClient::Close(int64_t episode) {
  const auto found = open_.find(episode);
  if (found == open_.end()) return;
  const auto worker = workers_.find(found->second.address);
  if (worker != workers_.end() && worker->second->open > 0) --worker->second->open;
  open_.erase(found);
  MutexLock lock(mu_);
  --num_open_;
}

void GrpcEnvironmentClient::Blame(const std::string& address, const absl::Status& status) {
  const auto worker = workers_.find(address);
  if (worker == workers_.end() || status.code() == absl::StatusCode::kInvalidArgument) return;
  const bool full = status.code() == absl::StatusCode::kResourceExhausted;
  worker->second->avoid_until = clock_.Now() + (full ? options_.avoid_full : options_.avoid_failed);
}

void GrpcEnvironmentClient::CheckDeadlines() {
  const absl::Time now = clock_.Now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto [deadline, episode] = *deadlines_.begin();
    deadlines_.erase(deadlines_.begin());
    const auto found = open_.find(episode);
    if (found == open_.end() || !found->second.waiting || found->second.deadline != deadline) {
      continue;
    }
    inbox_->Put(episode, StatusOf(absl::StatusCode::kDeadlineExceeded, "no answer from ",
                                  found->second.address, " within ",
                                  absl::FormatDuration(options_.step_timeout)));
  }
}

std::vector<EpisodeEvent> GrpcEnvironmentClient::Poll() {
  TakeAddresses();
  CheckDeadlines();
  std::vector<EpisodeEvent> arrived;
  {
    MutexLock lock(inbox_->mu);
    arrived = std::exchange(inbox_->events, {});
  }
  // Drop answers that arrive after their time-out or after Close.
  std::erase_if(arrived, [this](const EpisodeEvent& event) {
    const auto found = open_.find(event.episode);
    if (found == open_.end() || !std::exchange(found->second.waiting, false)) return true;
    if (!event.answer.ok()) {
      Blame(found->second.address, event.answer.status());
      Close(event.episode);
    }
    return false;
  });
  return arrived;
}

void GrpcEnvironmentClient::Await(absl::Duration timeout) {
  MutexLock lock(inbox_->mu);
  if (inbox_->events.empty()) inbox_->arrived.WaitFor(inbox_->mu, timeout);
}

}  // namespace freshet
