#ifndef FRESHET_SERVICES_RUNTIME_SERVER_H_
#define FRESHET_SERVICES_RUNTIME_SERVER_H_

#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/runtime/endpoint_options.h"

namespace prometheus {
class Registry;
}

namespace freshet::runtime {

// A listening gRPC server: TLS with certificate reload, users' tokens, per-method authorization,
// bounded messages, streams and memory, grpc.health.v1, and RPC metrics. Thread-safe.
class Server {
 public:
  // Listens and serves at once; health is NOT_SERVING until SetServing(true). `services` must
  // outlive the server. `registry` gets freshet_grpc_server_*; may be null. INVALID_ARGUMENT: see
  // ValidateEndpoint; FAILED_PRECONDITION: the address is in use; NOT_FOUND or INVALID_ARGUMENT: an
  // unusable TLS, policy or users file.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const EndpointOptions& options, const std::vector<grpc::Service*>& services,
      std::shared_ptr<prometheus::Registry> registry);
  // Calls Shutdown(now).
  ~Server();

  // The bound HOST:PORT or "unix:PATH".
  const std::string& address() const;
  // Health of "" and of every service.
  void SetServing(bool serving);
  // Health of one service by its full name, "freshet.job.v1.JobService".
  void SetServing(const std::string& service, bool serving);
  // Refuses new calls and waits for running ones until `deadline` (real time), then cancels them.
  // Idempotent.
  void Shutdown(absl::Time deadline);

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The address that others should use: `advertise`, with the port of `bound` if it has none. Without
// `advertise`, `bound`, with this host's name for 0.0.0.0 and [::].
std::string AdvertisedAddress(const std::string& advertise, const std::string& bound);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_SERVER_H_
