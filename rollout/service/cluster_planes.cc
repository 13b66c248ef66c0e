#include "rollout/service/cluster_planes.h"

#include <utility>

#include "weights/cuda/device_copy_opener.h"
#include "weights/grpc/cluster_route.h"
#include "weights/grpc/weight_puller.h"

namespace freshet {

void ClusterRolloutWeights::Serve(const std::string& job, const std::string& transport,
                                  const std::string& device,
                                  std::shared_ptr<WeightSubscriber> subscriber) {
  WeightEndpoint endpoint;
  endpoint.subscriber = std::move(subscriber);
  if (transport == "nccl" || transport == "gloo") endpoint.broadcast_backend = transport;
  if (transport == RouteName(ClusterRoute::kCudaIpc)) {
    endpoint.device_copies = std::make_shared<DeviceCopyOpener>(
        open_gpu_ ? open_gpu_(device)
                  : absl::UnimplementedError("this rollout was built without LibTorch"));
  }
  service_.Serve(job, std::move(endpoint));
}

absl::Status ClusterRolloutWeights::Pull(const std::string& job, const PolicyVersion& at_least,
                                         const std::vector<WeightMember>& engines,
                                         const std::optional<WeightMember>& trainer,
                                         const std::shared_ptr<WeightSubscriber>& subscriber,
                                         absl::Duration timeout, std::stop_token stop) {
  PullOptions options;
  options.job = job;
  options.at_least = at_least;
  options.stop = std::move(stop);
  options.timeout = timeout * time_scale_;
  options.silence_timeout *= time_scale_;
  const ChannelSource channels = [&](const std::string& address) {
    return trainer.has_value() && trainer->address == address ? trainers_(address)
                                                              : engines_(address);
  };
  return PullWeights(options, PullOrder(engines, trainer, TrainerPlace::kLast, seed_, site_),
                     channels, subscriber, clock_, observer_)
      .status();
}

ClusterEnvironments::ClusterEnvironments(GrpcEnvironmentClient::ChannelMaker channels,
                                         const Clock& clock, GrpcEnvironmentClientOptions options,
                                         std::string fixed_address)
    : fixed_(!fixed_address.empty()), client_(std::move(channels), clock, options) {
  if (fixed_) client_.SetAddresses({std::move(fixed_address)});
}

void ClusterEnvironments::SetAddresses(std::vector<std::string> addresses) {
  if (!fixed_) client_.SetAddresses(std::move(addresses));
}

}  // namespace freshet
