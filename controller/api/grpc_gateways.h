#ifndef FRESHET_CONTROLLER_API_GRPC_GATEWAYS_H_
#define FRESHET_CONTROLLER_API_GRPC_GATEWAYS_H_

#include <functional>
#include <string>

#include "controller/jobs/driver/job_ports.h"
#include "services/worker/channel_cache.h"

namespace freshet {

// Calls trainers over gRPC. `channels` must outlive it. Thread-safe.
class GrpcTrainerGateway final : public TrainerGateway {
 public:
  explicit GrpcTrainerGateway(runtime::ChannelCache& channels) : channels_(channels) {}

  absl::StatusOr<trainer::v1::ModelBundle> DescribeModel(const std::string& address,
                                                         const job::v1::JobSpec& spec,
                                                         absl::Duration deadline) override;
  absl::StatusOr<trainer::v1::ListCheckpointsReply> ListCheckpoints(
      const std::string& address, const std::string& job, absl::Duration deadline) override;
  absl::Status ExportCheckpoint(
      const std::string& address, const trainer::v1::ExportCheckpointRequest& request,
      absl::Duration deadline,
      const std::function<absl::Status(const trainer::v1::CheckpointChunk&)>& sink) override;
  absl::Status DeleteJobFiles(const std::string& address, const std::string& job,
                              absl::Duration deadline) override;

 private:
  runtime::ChannelCache& channels_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_API_GRPC_GATEWAYS_H_
