#ifndef FRESHET_TRAINER_SERVICE_CLUSTER_WEIGHT_PLANE_H_
#define FRESHET_TRAINER_SERVICE_CLUSTER_WEIGHT_PLANE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "trainer/service/training_work.h"
#include "weights/cuda/device_copies.h"
#include "weights/grpc/cluster_transport.h"
#include "weights/grpc/weight_service.h"

namespace freshet {

// The trainer's weight plane in a cluster: publishes to the members that the controller names, and
// serves the newest version to pullers through `service`, which must outlive it.
class ClusterWeightPlane final : public TrainerWeightPlane {
 public:
  // `host` and `site` are the trainer's. `time_scale` scales all timeouts except the job's own.
  // `open_copies` is for cuda_ipc; without copies the versions are in the memory files alone, and
  // the log says why.
  // INVALID_ARGUMENT: a transport that clusters do not support. FAILED_PRECONDITION: this process
  // lacks its backend.
  static absl::StatusOr<std::unique_ptr<TrainerWeightPlane>> Create(
      const cluster::v1::Assign& assign, const std::string& host, const std::string& site,
      ChannelSource channels, const Clock& clock, WeightSyncObserver* observer,
      GrpcWeightService& service, const OpenCommunicatorBackend& open_backend,
      const OpenDeviceCopies& open_copies, double time_scale = 1.0);
  ~ClusterWeightPlane() override;

  std::shared_ptr<WeightTransport> transport() override { return transport_; }
  std::unique_ptr<WeightStager> MakeStager() override;
  void SetMembers(const cluster::v1::Members& members) override;

 private:
  ClusterWeightPlane(std::string job, ClusterRoute route, std::shared_ptr<DeviceCopies> copies,
                     std::shared_ptr<ClusterTransport> transport, GrpcWeightService& service);

  const std::string job_;
  const ClusterRoute route_;
  const std::shared_ptr<DeviceCopies> copies_;  // null: none
  const std::shared_ptr<ClusterTransport> transport_;
  GrpcWeightService& service_;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_CLUSTER_WEIGHT_PLANE_H_
