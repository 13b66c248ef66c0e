#ifndef FRESHET_ROLLOUT_OPENAI_ENDPOINT_PORT_H_
#define FRESHET_ROLLOUT_OPENAI_ENDPOINT_PORT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/attached.h"
#include "rollout/openai/request_counts.h"
#include "rollout/openai/rollout_endpoint.h"
#include "services/runtime/http_server.h"

namespace freshet::openai {

struct EndpointPortOptions {
  std::string listen = "127.0.0.1:0";
  runtime::TlsFiles tls;         // of https; not enabled: http
  std::string advertise;         // base URL for agents; "": that of the bound address
  std::string advertised_host;   // in that URL off loopback; "": the bound one, or this host's name
  std::string token;             // API key that callers must present; "": any or none
  bool local_hosts_only = true;  // see ApiServiceOptions
  // From a request to the end of its answer. The queue's own timeout is normally shorter.
  absl::Duration answer_timeout = absl::Hours(1);
};

struct EndpointPortStats {
  bool serving = false;  // a model
  int64_t waiting = 0;   // requests that wait for room in the engine
  int64_t open = 0;      // waiting requests plus those in the engine
  int64_t sessions = 0;  // open ones

  // Sets all but the sessions: a model is served with this queue.
  void SetRequests(const QueueStats& queue);
};

// An HTTP port that serves one RolloutEndpoint at a time. Without one, requests get status 503.
// Thread-safe.
class EndpointPort {
 public:
  // Returns errors of HttpServer::Start.
  static absl::StatusOr<std::unique_ptr<EndpointPort>> Start(EndpointPortOptions options);
  // Waits up to a second until answers that are complete have been sent.
  ~EndpointPort();

  // Serves `endpoint` until Detach has returned. Its options begin with those of api().
  void Attach(RolloutEndpoint& endpoint) { shared_->endpoint.Attach(endpoint); }
  void Detach(const RolloutEndpoint& endpoint) { shared_->endpoint.Detach(endpoint); }

  // Options of an endpoint on this port: who may call, and who counts.
  ApiServiceOptions api() const;
  // "http://HOST:PORT/v1", or what is advertised.
  const std::string& base_url() const { return base_url_; }
  // The same for the agent at `address`, HOST:PORT or http://HOST:PORT/PATH. INVALID_ARGUMENT,
  // naming --openai-listen: the agent is not on loopback, but this port is, and nothing else is
  // advertised.
  absl::StatusOr<std::string> BaseUrlFor(const std::string& address) const;
  // The bound HOST:PORT.
  const std::string& address() const { return server_->address(); }
  EndpointPortStats stats() const;
  const RequestCounts& counts() const { return *shared_->counts; }

 private:
  // Shared with replies, which may outlive the port.
  struct Shared {
    Attached<RolloutEndpoint> endpoint;
    std::shared_ptr<RequestCounts> counts = std::make_shared<RequestCounts>();
  };
  class Reply;

  explicit EndpointPort(EndpointPortOptions options) : options_(std::move(options)) {}
  // The answer while there is no endpoint.
  static runtime::HttpResponse NoJob(const Shared& shared, const runtime::HttpRequest& request);
  static std::optional<runtime::HttpResponse> CheckHead(Shared& shared,
                                                        const runtime::HttpRequest& head);
  static void Handle(const std::shared_ptr<Shared>& shared, runtime::HttpRequest request,
                     std::shared_ptr<runtime::HttpReply> reply);

  const EndpointPortOptions options_;
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::string base_url_;
  std::unique_ptr<runtime::HttpServer> server_;
};

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_ENDPOINT_PORT_H_
