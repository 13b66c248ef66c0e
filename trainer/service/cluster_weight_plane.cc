#include "trainer/service/cluster_weight_plane.h"

#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "base/str_cat.h"
#include "weights/shm/memory_file.h"

namespace freshet {

absl::StatusOr<std::unique_ptr<TrainerWeightPlane>> ClusterWeightPlane::Create(
    const cluster::v1::Assign& assign, const std::string& host, const std::string& site,
    ChannelSource channels, const Clock& clock, WeightSyncObserver* observer,
    GrpcWeightService& service, const OpenCommunicatorBackend& open_backend, double time_scale) {
  ClusterTransportOptions options;
  options.job = assign.job_id();
  options.host = host;
  options.site = site;
  const job::v1::WeightSync& sync = assign.spec().weight_sync();
  FRESHET_ASSIGN_OR_RETURN(options.route, ParseClusterRoute(sync.transport()));
  if (options.route == ClusterRoute::kNccl || options.route == ClusterRoute::kGloo) {
    absl::StatusOr<std::shared_ptr<CommunicatorBackend>> backend =
        absl::UnimplementedError("it has no broadcast backend");
    if (open_backend) backend = open_backend(sync.transport());
    if (!backend.ok()) {
      return FailedPrecondition("weight_sync.transport: ", sync.transport(),
                                " does not work on this trainer: ", Message(backend.status()),
                                "; use auto");
    }
    options.backend = *std::move(backend);
  }
  if (sync.has_timeout_ms()) options.timeout = absl::Milliseconds(sync.timeout_ms());
  for (absl::Duration* time : {&options.silence_timeout, &options.activate_timeout,
                               &options.first_retry, &options.last_retry}) {
    *time *= time_scale;
  }
  const ClusterRoute route = options.route;
  auto transport =
      std::make_shared<ClusterTransport>(std::move(options), std::move(channels), clock, observer);
  return std::unique_ptr<TrainerWeightPlane>(
      new ClusterWeightPlane(assign.job_id(), route, std::move(transport), service));
}

ClusterWeightPlane::ClusterWeightPlane(std::string job, ClusterRoute route,
                                       std::shared_ptr<ClusterTransport> transport,
                                       GrpcWeightService& service)
    : job_(std::move(job)), route_(route), transport_(std::move(transport)), service_(service) {
  WeightEndpoint endpoint;
  endpoint.committed = [transport = transport_] { return transport->Committed(); };
  service_.Serve(job_, std::move(endpoint));
}

ClusterWeightPlane::~ClusterWeightPlane() { service_.Forget(job_); }

std::unique_ptr<WeightStager> ClusterWeightPlane::MakeStager() {
  if (route_ == ClusterRoute::kAuto || route_ == ClusterRoute::kShm) {
    return std::make_unique<MemoryFileStager>();
  }
  return std::make_unique<HeapStager>();
}

void ClusterWeightPlane::SetMembers(const cluster::v1::Members& members) {
  std::vector<WeightMember> engines;
  for (const weights::v1::Member& member : members.rollouts()) {
    engines.push_back({member.worker(), member.address(), member.work(), member.site()});
  }
  transport_->SetMembers(members.revision(), std::move(engines));
}

}  // namespace freshet
