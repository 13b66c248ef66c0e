#include "controller/api/controller_status.h"

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "base/version.h"
#include "controller/api/leader_call.h"
#include "services/runtime/status.h"

namespace freshet {
namespace {

// Requests are served one at a time, so an unreachable leader must not block the page for long.
constexpr absl::Duration kLeaderDeadline = absl::Seconds(2);

// Calls the leader under this controller's own identity.
template <typename Request, typename Response>
absl::StatusOr<Response> AskLeader(const Leadership::View& leader, runtime::ChannelCache& channels,
                                   const Request& request,
                                   grpc::Status (job::v1::JobService::Stub::*method)(
                                       grpc::ClientContext*, const Request&, Response*)) {
  FRESHET_ASSIGN_OR_RETURN(const LeaderLink link,
                           LinkToLeader(leader, channels, CallOrigin(), kLeaderDeadline));
  Response response;
  const absl::Status answered =
      runtime::GrpcToStatus((link.stub.get()->*method)(link.context.get(), request, &response));
  if (!answered.ok()) {
    return StatusOf(answered.code(), "the controller that leads, ", leader.address, ": ",
                    Message(answered));
  }
  return response;
}

}  // namespace

StatusIdentity ControllerStatus::Identity() {
  return {"controller", Version(), controller_.Active() != nullptr, controller_.Leader().address};
}

absl::StatusOr<StatusJobs> ControllerStatus::List(int limit) { return reader_.ListByState(limit); }

absl::StatusOr<job::v1::Job> ControllerStatus::Get(const std::string& id) {
  if (controller_.Active() == nullptr) {
    job::v1::GetRequest request;
    request.set_job_id(id);
    absl::StatusOr<job::v1::Job> live =
        AskLeader(controller_.Leader(), channels_, request, &job::v1::JobService::Stub::Get);
    if (live.ok()) return live;
  }
  return reader_.Get(id);
}

absl::StatusOr<StatusRows> ControllerStatus::Metrics(const std::string& id, int64_t after,
                                                     int64_t limit) {
  return reader_.Metrics(id, after, limit);
}

absl::StatusOr<std::vector<std::string>> ControllerStatus::Samples(const std::string& id,
                                                                   int limit) {
  job::v1::ListSamplesRequest request;
  request.set_job_id(id);
  request.set_limit(limit);
  FRESHET_ASSIGN_OR_RETURN(const job::v1::ListSamplesReply reply, reader_.Samples(request));
  return std::vector<std::string>(reply.samples_json().begin(), reply.samples_json().end());
}

absl::StatusOr<job::v1::Cluster> ControllerStatus::Cluster() {
  if (const auto term = controller_.Active()) return reader_.Cluster(*term);
  return AskLeader(controller_.Leader(), channels_, job::v1::GetClusterRequest(),
                   &job::v1::JobService::Stub::GetCluster);
}

}  // namespace freshet
