#ifndef FRESHET_SERVICES_WORKER_CONTROLLER_STUBS_H_
#define FRESHET_SERVICES_WORKER_CONTROLLER_STUBS_H_

#include <grpcpp/client_context.h>

#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "freshet/cluster/v1/worker_service.grpc.pb.h"
#include "services/runtime/channel.h"
#include "services/runtime/status.h"

namespace freshet::runtime {

// Connections to the controllers by address, and the unary calls in flight on them, which can be
// cancelled together. Thread-safe.
class ControllerStubs {
 public:
  using Stub = cluster::v1::WorkerService::Stub;

  explicit ControllerStubs(const ChannelOptions& options) : options_(options) {}

  // Returns the cached stub of the address; keeps the last few. Errors as for MakeChannel.
  absl::StatusOr<std::shared_ptr<Stub>> Get(const std::string& address) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs `call`, a grpc::Status(grpc::ClientContext&), with a deadline. CANCELLED after Stop.
  template <typename Call>
  absl::Status Run(absl::Duration timeout, const Call& call) ABSL_LOCKS_EXCLUDED(mu_) {
    grpc::ClientContext context;
    SetDeadline(context, timeout);
    if (!Enter(context)) return absl::CancelledError("the worker is stopping");
    absl::Status status = GrpcToStatus(call(context));
    Leave(context);
    return status;
  }
  void CancelAll() ABSL_LOCKS_EXCLUDED(mu_);
  // Cancels the calls in flight and refuses later ones.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  bool Enter(grpc::ClientContext& context) ABSL_LOCKS_EXCLUDED(mu_);
  void Leave(grpc::ClientContext& context) ABSL_LOCKS_EXCLUDED(mu_);

  const ChannelOptions options_;
  Mutex mu_;
  std::map<std::string, std::shared_ptr<Stub>> stubs_ ABSL_GUARDED_BY(mu_);
  std::set<grpc::ClientContext*> running_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_WORKER_CONTROLLER_STUBS_H_
