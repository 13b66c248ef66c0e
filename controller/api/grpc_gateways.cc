#include "controller/api/grpc_gateways.h"

#include <memory>
#include <string>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "freshet/trainer/v1/trainer_service.grpc.pb.h"
#include "services/runtime/channel.h"
#include "services/runtime/status.h"

namespace freshet {
namespace {

constexpr cluster::v1::Role kTrainer = cluster::v1::ROLE_TRAINER;

// Failures are retryable, because certificate files may be in the middle of a rotation.
absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelTo(runtime::ChannelCache& channels,
                                                         const std::string& address,
                                                         cluster::v1::Role role) {
  auto channel = channels.Get(address, role);
  if (channel.ok()) return channel;
  return StatusOf(absl::StatusCode::kUnavailable, address, ": ", Message(channel.status()));
}

// One unary call of `method` on the member with `role` at `address`.
template <typename Service, typename Request, typename Response>
absl::StatusOr<Response> Call(runtime::ChannelCache& channels, cluster::v1::Role role,
                              const std::string& address,
                              grpc::Status (Service::Stub::*method)(grpc::ClientContext*,
                                                                    const Request&, Response*),
                              const Request& request, absl::Duration deadline) {
  if (address.empty()) {
    return StatusOf(absl::StatusCode::kUnavailable, "the worker has no address yet");
  }
  FRESHET_ASSIGN_OR_RETURN(const auto channel, ChannelTo(channels, address, role));
  const auto stub = Service::NewStub(channel);
  const auto context = runtime::CallWithin(deadline);
  Response response;
  FRESHET_RETURN_IF_ERROR(
      runtime::GrpcToStatus((stub.get()->*method)(context.get(), request, &response)));
  return response;
}

}  // namespace

using trainer::v1::TrainerService;

absl::StatusOr<trainer::v1::ModelBundle> GrpcTrainerGateway::DescribeModel(
    const std::string& address, const job::v1::JobSpec& spec, absl::Duration deadline) {
  trainer::v1::DescribeModelRequest request;
  *request.mutable_spec() = spec;
  return Call<TrainerService>(channels_, kTrainer, address, &TrainerService::Stub::DescribeModel,
                              request, deadline);
}

absl::StatusOr<trainer::v1::ListCheckpointsReply> GrpcTrainerGateway::ListCheckpoints(
    const std::string& address, const std::string& job, absl::Duration deadline) {
  trainer::v1::ListCheckpointsRequest request;
  request.set_job_id(job);
  return Call<TrainerService>(channels_, kTrainer, address, &TrainerService::Stub::ListCheckpoints,
                              request, deadline);
}

absl::Status GrpcTrainerGateway::ExportCheckpoint(
    const std::string& address, const trainer::v1::ExportCheckpointRequest& request,
    absl::Duration deadline,
    const std::function<absl::Status(const trainer::v1::CheckpointChunk&)>& sink) {
  FRESHET_ASSIGN_OR_RETURN(const auto channel, ChannelTo(channels_, address, kTrainer));
  const auto stub = TrainerService::NewStub(channel);
  const auto context = runtime::CallWithin(deadline);
  const auto reader = stub->ExportCheckpoint(context.get(), request);
  trainer::v1::CheckpointChunk chunk;
  absl::Status status;
  while (status.ok() && reader->Read(&chunk)) status = sink(chunk);
  if (!status.ok()) context->TryCancel();
  const absl::Status finished = runtime::GrpcToStatus(reader->Finish());
  return status.ok() ? finished : status;
}

absl::Status GrpcTrainerGateway::DeleteJobFiles(const std::string& address, const std::string& job,
                                                absl::Duration deadline) {
  trainer::v1::DeleteJobFilesRequest request;
  request.set_job_id(job);
  return Call<TrainerService>(channels_, kTrainer, address, &TrainerService::Stub::DeleteJobFiles,
                              request, deadline)
      .status();
}

}  // namespace freshet
