#ifndef FRESHET_ROLLOUT_SERVICE_CLUSTER_PLANES_H_
#define FRESHET_ROLLOUT_SERVICE_CLUSTER_PLANES_H_

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "rollout/environment/grpc/grpc_environment_client.h"
#include "rollout/service/rollout_work.h"
#include "weights/cuda/device_memory.h"
#include "weights/grpc/weight_service.h"

namespace freshet {

// Weight transfer between processes. `service` and `clock` must outlive it. Thread-safe.
class ClusterRolloutWeights final : public RolloutWeightPlane {
 public:
  // Channels to engines and to trainers. `seed` randomizes which peers joiners pull from;
  // `time_scale` scales the timeouts; peers of `site` are preferred. `observer` may be null.
  // `open_gpu` is for cuda_ipc and may be empty.
  ClusterRolloutWeights(GrpcWeightService& service, ChannelSource engines, ChannelSource trainers,
                        const Clock& clock, WeightSyncObserver* observer, uint64_t seed,
                        double time_scale = 1.0, std::string site = {},
                        OpenDeviceMemory open_gpu = {})
      : service_(service),
        engines_(std::move(engines)),
        trainers_(std::move(trainers)),
        clock_(clock),
        observer_(observer),
        seed_(seed),
        time_scale_(time_scale),
        site_(std::move(site)),
        open_gpu_(std::move(open_gpu)) {}

  void Serve(const std::string& job, const std::string& transport, const std::string& device,
             std::shared_ptr<WeightSubscriber> subscriber) override;
  void Forget(const std::string& job) override { service_.Forget(job); }
  absl::Status Pull(const std::string& job, const PolicyVersion& at_least,
                    const std::vector<WeightMember>& engines,
                    const std::optional<WeightMember>& trainer,
                    const std::shared_ptr<WeightSubscriber>& subscriber, absl::Duration timeout,
                    std::stop_token stop) override;

 private:
  GrpcWeightService& service_;
  const ChannelSource engines_;
  const ChannelSource trainers_;
  const Clock& clock_;
  WeightSyncObserver* const observer_;
  const uint64_t seed_;
  const double time_scale_;
  const std::string site_;
  const OpenDeviceMemory open_gpu_;
};

// Environment workers of the cluster, or the one that the job names.
class ClusterEnvironments final : public EnvironmentPool {
 public:
  ClusterEnvironments(GrpcEnvironmentClient::ChannelMaker channels, const Clock& clock,
                      GrpcEnvironmentClientOptions options, std::string fixed_address);
  EnvironmentClient& client() override { return client_; }
  // Ignored if the job names an address.
  void SetAddresses(std::vector<std::string> addresses) override;

 private:
  const bool fixed_;
  GrpcEnvironmentClient client_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_CLUSTER_PLANES_H_
