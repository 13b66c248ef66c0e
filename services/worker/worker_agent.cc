#include "services/worker/worker_agent.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "base/digest.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/transient.h"

namespace freshet::runtime {
namespace {

// Detects a vanished controller about as fast as the controller detects a lost worker.
constexpr absl::Duration kPingTime = absl::Seconds(1);
constexpr absl::Duration kPingTimeout = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseControllers(const std::string& list) {
  std::vector<std::string> addresses;
  size_t begin = 0;
  while (begin <= list.size()) {
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string address = list.substr(begin, end - begin);
    const auto parsed = ParseHostPort(address);
    if (!parsed.has_value() || parsed->port == 0) {
      return InvalidArgument("--controller: \"", address, "\" is not HOST:PORT");
    }
    addresses.push_back(address);
    begin = end + 1;
  }
  return addresses;
}

WorkerAgentOptions WorkerAgent::WithDefaults(WorkerAgentOptions options) {
  options.channel.keepalive_time = kPingTime;
  options.channel.keepalive_timeout = kPingTimeout;
  options.channel.own_connection = true;
  if (options.backoff.seed == 0) {  // so that workers do not reconnect all at once
    const std::string who = StrCat(options.identity.worker(), options.identity.incarnation());
    options.backoff.seed = Xxh3(who.data(), who.size());
  }
  return options;
}

void WorkerAgent::SendStatusNow() {
  MutexLock lock(mu_);
  beat_now_ = true;
  if (stream_ != nullptr) stream_->Interrupt();
}

void WorkerAgent::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    if (stream_ != nullptr) stream_->Cancel();
    cv_.NotifyAll();
  }
  stubs_.Stop();
  queue_.Stop();
  MutexLock lock(join_mu_);
  if (control_.joinable()) control_.join();
}

std::shared_ptr<WorkerAgent::Stub> WorkerAgent::AwaitLeader(absl::Time deadline) {
  MutexLock lock(mu_);
  while (true) {
    if (stopping_) return nullptr;
    if (connected_) return stub_;
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return nullptr;
    cv_.WaitFor(mu_, left);
  }
}

absl::Status WorkerAgent::Deregister(const std::string& reason) {
  std::shared_ptr<Stub> stub;
  cluster::v1::DeregisterRequest request;
  bool registering = false;
  {
    MutexLock lock(mu_);
    leaving_ = true;
    registering = stream_ == nullptr;
    if (stream_ != nullptr) stream_->Interrupt();
    cv_.NotifyAll();
  }
  if (registering) stubs_.CancelAll();
  {
    MutexLock lock(mu_);
    // Control sends the last status and ends.
    const absl::Time deadline = absl::Now() + 2 * options_.call_timeout;
    while (!control_ended_ && absl::Now() < deadline) cv_.WaitFor(mu_, deadline - absl::Now());
    stub = stub_;
    request.set_epoch(epoch_);
  }
  absl::Status status;
  if (request.epoch() != 0) {
    request.set_worker(name());
    request.set_reason(reason);
    status = stubs_.Run(options_.call_timeout, [&](grpc::ClientContext& context) {
      cluster::v1::DeregisterReply reply;
      return stub->Deregister(&context, request, &reply);
    });
  }
  Stop();
  return status;
}

absl::StatusOr<std::unique_ptr<WorkerAgent>> WorkerAgent::Create(const WorkerAgentOptions& options,
                                                                 StatusSource& source,
                                                                 DirectiveSink& sink, LogRing* log,
                                                                 const Clock& clock) {
  if (options.controllers.empty()) return InvalidArgument("--controller is missing");
  if (options.identity.worker().empty()) return InvalidArgument("the worker has no name");
  if (options.identity.role() == cluster::v1::ROLE_UNSPECIFIED) {
    return InvalidArgument("worker ", options.identity.worker(), " has no role");
  }
  std::unique_ptr<WorkerAgent> agent(new WorkerAgent(options, source, sink, log, clock));
  // The channel to the first controller validates the options.
  FRESHET_RETURN_IF_ERROR(agent->stubs_.Get(agent->options_.controllers.front()).status());
  return agent;
}

WorkerAgent::WorkerAgent(const WorkerAgentOptions& options, StatusSource& source,
                         DirectiveSink& sink, LogRing* log, const Clock& clock)
    : options_(WithDefaults(options)),
      source_(source),
      log_(log),
      clock_(clock),
      stubs_(options_.channel),
      queue_(sink, options.max_pending_directives) {}

void WorkerAgent::Begin() {
  MutexLock lock(join_mu_);
  control_ = std::thread([this] { Control(); });
}

absl::StatusOr<cluster::v1::FetchRowsReply> WorkerAgent::FetchRows(
    const cluster::v1::FetchRowsRequest& request) {
  const absl::Time deadline = absl::Now() + options_.data_timeout;
  Backoff backoff(options_.backoff);
  absl::Status status = absl::UnavailableError("no controller is reachable");
  while (absl::Now() < deadline) {
    const std::shared_ptr<Stub> leader = AwaitLeader(deadline);
    if (leader == nullptr) break;
    cluster::v1::FetchRowsReply reply;
    status = stubs_.Run(deadline - absl::Now(), [&](grpc::ClientContext& context) {
      return leader->FetchRows(&context, request, &reply);
    });
    if (status.ok()) return reply;
    if (!IsTransient(status)) return status;
    const absl::Time again = std::min(absl::Now() + backoff.Next(), deadline);
    MutexLock lock(mu_);
    while (!stopping_ && absl::Now() < again) cv_.WaitFor(mu_, again - absl::Now());
  }
  return absl::UnavailableError(status.message());
}

}  // namespace freshet::runtime
