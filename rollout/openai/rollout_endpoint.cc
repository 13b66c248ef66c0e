#include "rollout/openai/rollout_endpoint.h"

#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet::openai {
namespace {

constexpr size_t kMaxBodyBytes = size_t{4} << 20;
constexpr size_t kMaxConnections = 1024;
constexpr absl::Duration kIoTimeout = absl::Seconds(30);
constexpr absl::Duration kIdleTimeout = absl::Minutes(2);

ApiServiceOptions WithSessions(ApiServiceOptions options, SessionRegistry& sessions) {
  options.sessions = &sessions;
  return options;
}

}  // namespace

RolloutEndpoint::RolloutEndpoint(InferenceEngine& engine, const Tokenizer& tokenizer,
                                 const Clock& clock, RolloutEndpointOptions options)
    : sessions_(tokenizer, options.max_sessions),
      queue_(engine, options.queue, clock),
      service_(WithSessions(std::move(options.api), sessions_), tokenizer, queue_, clock) {
  queue_.Close("the rollout has not started");
}

absl::StatusOr<std::unique_ptr<RolloutEndpoint>> RolloutEndpoint::Start(
    InferenceEngine& engine, const Tokenizer& tokenizer, const Clock& clock,
    RolloutEndpointOptions options) {
  runtime::HttpLimits limits;
  limits.max_connections = kMaxConnections;
  limits.max_body_bytes = kMaxBodyBytes;
  limits.io_timeout = kIoTimeout;
  limits.answer_timeout = options.queue.request_timeout + kIoTimeout;
  limits.idle_timeout = kIdleTimeout;
  limits.refusal = &ApiService::Refusal;
  const std::string listen = options.listen;
  std::unique_ptr<RolloutEndpoint> endpoint(
      new RolloutEndpoint(engine, tokenizer, clock, std::move(options)));
  runtime::HttpAsyncHandler handler = [&service = endpoint->service_](
                                          runtime::HttpRequest request,
                                          std::shared_ptr<runtime::HttpReply> reply) {
    service.Handle(std::move(request), std::move(reply));
  };
  FRESHET_ASSIGN_OR_RETURN(endpoint->server_,
                           runtime::HttpServer::Start(listen, std::move(handler), limits));
  return endpoint;
}

std::string RolloutEndpoint::base_url() const {
  return StrCat("http://", server_->address(), "/v1");
}

}  // namespace freshet::openai
