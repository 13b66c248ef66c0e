#ifndef FRESHET_CONTROLLER_API_WORKER_SERVICE_H_
#define FRESHET_CONTROLLER_API_WORKER_SERVICE_H_

#include <string>

#include "absl/status/status.h"
#include "controller/jobs/driver/controller.h"
#include "freshet/cluster/v1/worker_service.grpc.pb.h"
#include "services/runtime/executor.h"

namespace freshet {

// WorkerService over gRPC. Forwards everything to the current term; a standby names the leader.
// Thread-safe.
class WorkerServiceImpl final : public cluster::v1::WorkerService::CallbackService {
 public:
  // `controller` must outlive the service. If `member_name` is set (the member name in
  // certificates, see runtime/peer_name.h), a worker can register only with the role that its
  // certificate carries.
  explicit WorkerServiceImpl(Controller& controller, std::string member_name = "");

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const cluster::v1::RegisterRequest* request,
                                     cluster::v1::RegisterReply* reply) override;
  grpc::ServerBidiReactor<cluster::v1::WorkerStatus, cluster::v1::Directive>* Heartbeat(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Deregister(grpc::CallbackServerContext* context,
                                       const cluster::v1::DeregisterRequest* request,
                                       cluster::v1::DeregisterReply* reply) override;
  grpc::ServerUnaryReactor* FetchRows(grpc::CallbackServerContext* context,
                                      const cluster::v1::FetchRowsRequest* request,
                                      cluster::v1::FetchRowsReply* reply) override;

  // Stops the threads. The server must be shut down first.
  void Stop() { executor_.Stop(); }

  static constexpr size_t kMaxWaiting = 4096;
  size_t queued_calls() const { return executor_.queued(); }

 private:
  absl::Status CheckRole(const grpc::CallbackServerContext& context,
                         const cluster::v1::RegisterRequest& request) const;

  Controller& controller_;
  const std::string member_name_;
  runtime::Executor executor_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_WORKER_SERVICE_H_
