#ifndef FRESHET_SERVICES_RUNTIME_SERVE_H_
#define FRESHET_SERVICES_RUNTIME_SERVE_H_

#include <grpcpp/impl/service_type.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/runtime/endpoint_options.h"
#include "services/runtime/readiness.h"

namespace prometheus {
class Registry;
}

namespace freshet::runtime {

// What a role gets when its ports are bound. Lives until Serve returns.
struct RoleContext {
  std::string grpc_address;  // as others should use it (EndpointOptions.advertise)
  std::string http_address;  // "" without an HTTP port
  Readiness* readiness = nullptr;
  // Ends the process as SIGTERM does (a Drain directive, a lost leadership). The exit code is 0
  // for an OK status, else 1 with the status on stderr. Callable from any thread, returns at once.
  std::function<void(absl::Status)> request_drain;
};

// What one process does. All calls come from the thread that runs Serve.
class Role {
 public:
  virtual ~Role() = default;
  // The services to register; they must be able to answer before Start is called.
  virtual std::vector<grpc::Service*> Services() = 0;
  // Starts the work. Must not block for long: a peer that is not there yet is waited for in the
  // background, with the readiness off.
  virtual absl::Status Start(const RoleContext& context) = 0;
  // Takes no new work, hands back or finishes the rest, flushes and deregisters; returns when that
  // is done, at the latest at `deadline` (real time). RPCs are still served meanwhile.
  virtual absl::Status Drain(absl::Time deadline) = 0;
  // The server is down: ends all threads. Called once, also after a failed Start.
  virtual void Stop() = 0;
};

struct ServeOptions {
  std::string role;     // "rollout"
  std::string version;  // of the program, for freshet_build_info
  EndpointOptions endpoint;
  std::shared_ptr<prometheus::Registry> registry;  // exposed as /metrics; null: a new one
  // Brings metrics up to date that are read only when they are asked for; called on the HTTP
  // server's thread, must be quick. May be empty.
  std::function<void()> before_scrape;
  // More of the ready line: " KEY=VALUE" each. Called once, after Role::Start. May be empty.
  std::function<std::string()> ready_fields;
  // For calls that still run after the drain; longer ones, such as open streams, are cancelled.
  absl::Duration shutdown_grace = absl::Seconds(2);
};

// Runs a role until SIGTERM, SIGINT or request_drain, and returns the exit code of the process.
// Binds both ports, calls Start, prints one line to stdout
//   ready ROLE grpc=HOST:PORT http=HOST:PORT
// (http=- without such a port, and then the role's own fields) and waits. The readiness has the
// condition "serving", which holds between that line and the end. To end: readiness off,
// Role::Drain within drain_timeout, server shutdown within shutdown_grace, Role::Stop. Exit codes:
// 0 drained; 1 Drain or request_drain brought an error; 2 bad endpoint options; 3 a TLS or policy
// file, or an address that is taken; for a failed Start 3 when the code is INVALID_ARGUMENT,
// NOT_FOUND, FAILED_PRECONDITION or DATA_LOSS, 7 for UNAVAILABLE, else 1. A second signal ends the
// process at once with 130. Errors are one line on stderr. One call at a time per process. SIGPIPE
// stays ignored.
int Serve(Role& role, const ServeOptions& options);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_SERVE_H_
