#include "trainer/service/cluster_weight_plane.h"

#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "trainer/loop/trainer_setup.h"
#include "weights/shm/memory_file.h"

namespace freshet {
namespace {

// Null if there are none, for a reason that is logged.
std::shared_ptr<DeviceCopies> OpenCopies(const job::v1::JobSpec& spec,
                                         const OpenDeviceCopies& open_copies) {
  absl::StatusOr<std::shared_ptr<DeviceCopies>> copies =
      absl::UnimplementedError("this trainer was built without LibTorch");
  if (open_copies) copies = open_copies(DeviceOfTrainer(spec));
  if (copies.ok()) {
    (*copies)->Start(static_cast<size_t>(GpuCopies(spec)));
    return *std::move(copies);
  }
  FRESHET_LOG(Warning) << "event=no_gpu_copy reason=" << LogQuoted(Message(copies.status()));
  return nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainerWeightPlane>> ClusterWeightPlane::Create(
    const cluster::v1::Assign& assign, const std::string& host, const std::string& site,
    ChannelSource channels, const Clock& clock, WeightSyncObserver* observer,
    GrpcWeightService& service, const OpenCommunicatorBackend& open_backend,
    const OpenDeviceCopies& open_copies, double time_scale) {
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
  if (options.route == ClusterRoute::kCudaIpc) {
    options.device_copies = OpenCopies(assign.spec(), open_copies);
  }
  options.delta = sync.delta() == "zstd";
  if (sync.has_timeout_ms()) options.timeout = absl::Milliseconds(sync.timeout_ms());
  for (absl::Duration* time : {&options.silence_timeout, &options.activate_timeout,
                               &options.first_retry, &options.last_retry}) {
    *time *= time_scale;
  }
  const ClusterRoute route = options.route;
  std::shared_ptr<DeviceCopies> copies = options.device_copies;
  auto transport =
      std::make_shared<ClusterTransport>(std::move(options), std::move(channels), clock, observer);
  return std::unique_ptr<TrainerWeightPlane>(new ClusterWeightPlane(
      assign.job_id(), route, std::move(copies), std::move(transport), service));
}

ClusterWeightPlane::ClusterWeightPlane(std::string job, ClusterRoute route,
                                       std::shared_ptr<DeviceCopies> copies,
                                       std::shared_ptr<ClusterTransport> transport,
                                       GrpcWeightService& service)
    : job_(std::move(job)),
      route_(route),
      copies_(std::move(copies)),
      transport_(std::move(transport)),
      service_(service) {
  WeightEndpoint endpoint;
  endpoint.committed = [transport = transport_] { return transport->Committed(); };
  service_.Serve(job_, std::move(endpoint));
}

ClusterWeightPlane::~ClusterWeightPlane() {
  service_.Forget(job_);
  if (copies_ != nullptr) copies_->Trim();
}

std::unique_ptr<WeightStager> ClusterWeightPlane::MakeStager() {
  if (SharesMemory(route_)) return std::make_unique<MemoryFileStager>();
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
