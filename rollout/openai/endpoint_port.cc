#include "rollout/openai/endpoint_port.h"

#include <functional>
#include <utility>

#include "base/http_address.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/openai/json_response.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/server.h"

namespace freshet::openai {
namespace {

constexpr size_t kMaxBodyBytes = size_t{4} << 20;
constexpr size_t kMaxConnections = 1024;
constexpr absl::Duration kIoTimeout = absl::Seconds(30);
constexpr absl::Duration kIdleTimeout = absl::Minutes(2);
constexpr absl::Duration kLastAnswers = absl::Seconds(1);
constexpr char kFlag[] = "--openai-listen";

}  // namespace

// Drops what the end of a connection would do to an endpoint that is no longer served.
class EndpointPort::Reply final : public runtime::HttpReply {
 public:
  Reply(std::shared_ptr<runtime::HttpReply> reply, std::shared_ptr<Shared> shared, int64_t number)
      : reply_(std::move(reply)), shared_(std::move(shared)), number_(number) {}

  void Send(runtime::HttpResponse response) override { reply_->Send(std::move(response)); }
  void StartStream(runtime::HttpResponse head) override { reply_->StartStream(std::move(head)); }
  bool Write(std::string piece) override { return reply_->Write(std::move(piece)); }
  void Finish() override { reply_->Finish(); }
  void OnClosed(std::function<void()> closed) override {
    reply_->OnClosed([shared = shared_, number = number_, closed = std::move(closed)] {
      shared->endpoint.WithSame(number, [&closed](RolloutEndpoint&) { closed(); });
    });
  }

 private:
  const std::shared_ptr<runtime::HttpReply> reply_;
  const std::shared_ptr<Shared> shared_;
  const int64_t number_;
};

runtime::HttpResponse EndpointPort::NoJob(const Shared& shared,
                                          const runtime::HttpRequest& request) {
  const absl::Status none = absl::UnavailableError("no job runs on this rollout");
  if (request.method == "POST") shared.counts->Count(none);
  return ErrorResponse(none);
}

std::optional<runtime::HttpResponse> EndpointPort::CheckHead(Shared& shared,
                                                             const runtime::HttpRequest& head) {
  std::optional<runtime::HttpResponse> answer;
  const bool served = shared.endpoint.With(
      [&](RolloutEndpoint& endpoint, int64_t) { answer = endpoint.service().CheckHead(head); });
  if (!served) answer = NoJob(shared, head);
  return answer;
}

void EndpointPort::Handle(const std::shared_ptr<Shared>& shared, runtime::HttpRequest request,
                          std::shared_ptr<runtime::HttpReply> reply) {
  const bool served = shared->endpoint.With([&](RolloutEndpoint& endpoint, int64_t number) {
    endpoint.service().Handle(std::move(request),
                              std::make_shared<Reply>(std::move(reply), shared, number));
  });
  if (!served) reply->Send(NoJob(*shared, request));
}

absl::StatusOr<std::unique_ptr<EndpointPort>> EndpointPort::Start(EndpointPortOptions options) {
  runtime::HttpLimits limits;
  limits.max_connections = kMaxConnections;
  limits.max_body_bytes = kMaxBodyBytes;
  limits.io_timeout = kIoTimeout;
  limits.answer_timeout = options.answer_timeout;
  limits.idle_timeout = kIdleTimeout;
  limits.refusal = &ApiService::Refusal;
  limits.flag = kFlag;
  std::unique_ptr<EndpointPort> port(new EndpointPort(std::move(options)));
  limits.check_head = [shared = port->shared_](const runtime::HttpRequest& head) {
    return CheckHead(*shared, head);
  };
  runtime::HttpAsyncHandler handler = [shared = port->shared_](
                                          runtime::HttpRequest request,
                                          std::shared_ptr<runtime::HttpReply> reply) {
    Handle(shared, std::move(request), std::move(reply));
  };
  const EndpointPortOptions& own = port->options_;
  FRESHET_ASSIGN_OR_RETURN(
      port->server_, runtime::HttpServer::Start(own.listen, std::move(handler), limits, own.tls));
  port->base_url_ = own.advertise;
  if (port->base_url_.empty()) {
    std::string address = port->server_->address();
    if (!runtime::IsLoopback(address)) {
      address = runtime::AdvertisedAddress(own.advertised_host, address);
    }
    port->base_url_ = StrCat(own.tls.enabled() ? "https://" : "http://", address, "/v1");
  }
  return port;
}

absl::StatusOr<std::string> EndpointPort::BaseUrlFor(const std::string& address) const {
  const std::optional<HttpAddress> agent = ParseHttpAddress(address);
  const bool elsewhere = agent.has_value() && !runtime::IsLoopback(agent->server);
  if (elsewhere && options_.advertise.empty() && runtime::IsLoopback(server_->address())) {
    return InvalidArgument("environment.address ", address, " is not a loopback address, but ",
                           base_url_,
                           ", this rollout's OpenAI endpoint, is: name an agent on "
                           "the same machine 127.0.0.1:PORT. For others start freshet-rollout "
                           "with ",
                           kFlag,
                           ", --openai-token-file and TLS files "
                           "(docs/agents.md); freshet local takes agents on its machine only");
  }
  return base_url_;
}

EndpointPort::~EndpointPort() {
  if (server_ != nullptr) server_->Drain(kLastAnswers);
}

ApiServiceOptions EndpointPort::api() const {
  ApiServiceOptions api;
  api.api_key = options_.token;
  api.local_hosts_only = options_.local_hosts_only;
  api.counts = shared_->counts;
  return api;
}

void EndpointPortStats::SetRequests(const QueueStats& queue) {
  serving = true;
  waiting = queue.waiting;
  open = queue.waiting + queue.running;
}

EndpointPortStats EndpointPort::stats() const {
  EndpointPortStats stats;
  shared_->endpoint.With([&stats](RolloutEndpoint& endpoint, int64_t) {
    stats.SetRequests(endpoint.queue().stats());
    stats.sessions = static_cast<int64_t>(endpoint.sessions().size());
  });
  return stats;
}

}  // namespace freshet::openai
