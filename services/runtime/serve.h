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

// Passed to a role once its ports are bound. Lives until Serve returns.
struct RoleContext {
  std::string grpc_address;  // for use by others (EndpointOptions.advertise)
  std::string http_address;  // "" without an HTTP port
  Readiness* readiness = nullptr;
  // Ends the process like SIGTERM (for a Drain directive or a lost leadership). The exit code is 0
  // for an OK status, else 1 with the status on stderr. Callable from any thread; returns at once.
  std::function<void(absl::Status)> request_drain;
};

// The work of one process. All calls come from the thread that runs Serve.
class Role {
 public:
  virtual ~Role() = default;
  // The services to register; they must be able to handle calls before Start is called.
  virtual std::vector<grpc::Service*> Services() = 0;
  // Starts the work. Must not block for long: wait for missing peers in the background, with the
  // readiness off.
  virtual absl::Status Start(const RoleContext& context) = 0;
  // Takes no new work, finishes or returns the rest, flushes and deregisters. Returns when done, at
  // the latest at `deadline` (real time). RPCs are still served meanwhile.
  virtual absl::Status Drain(absl::Time deadline) = 0;
  // Stops all threads. The server is already down. Called once, also after a failed Start.
  virtual void Stop() = 0;
};

struct ServeOptions {
  std::string role;     // "rollout"
  std::string version;  // of the program, for freshet_build_info
  EndpointOptions endpoint;
  std::shared_ptr<prometheus::Registry> registry;  // exposed as /metrics; null: a new one
  // Updates metrics that are computed on scrape. Called on the HTTP server's thread; must be quick.
  // May be empty.
  std::function<void()> before_scrape;
  // Additional fields of the ready line: " KEY=VALUE" each. Called once, after Role::Start. May be
  // empty.
  std::function<std::string()> ready_fields;
  // For calls that still run after the drain; longer ones, such as open streams, are cancelled.
  absl::Duration shutdown_grace = absl::Seconds(2);
};

// Runs a role until SIGTERM, SIGINT or request_drain, and returns the exit code of the process.
// Binds both ports, calls Start, prints one line to stdout
//
//   ready ROLE grpc=HOST:PORT http=HOST:PORT
//
// (http=- without HTTP; then the role's own fields) and waits. Readiness condition "serving" holds
// from that line until shutdown. Shutdown: readiness off, Role::Drain within drain_timeout, server
// shutdown within shutdown_grace, Role::Stop.
//
// Exit codes: 0 drained; 1 Drain or request_drain returned an error; 2 bad endpoint options; 3 a
// bad TLS or policy file, or an address in use; for a failed Start, 3 for INVALID_ARGUMENT,
// NOT_FOUND, FAILED_PRECONDITION or DATA_LOSS, 7 for UNAVAILABLE, else 1. A second signal ends the
// process at once with 130. Errors are one line on stderr. One call at a time per process. SIGPIPE
// stays ignored.
int Serve(Role& role, const ServeOptions& options);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_SERVE_H_
