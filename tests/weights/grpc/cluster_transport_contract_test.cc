#include <memory>
#include <utility>
#include <vector>

#include "tests/contract/weight_transport_contract.h"
#include "tests/weights/cuda/fake_gpu.h"
#include "tests/weights/grpc/cluster_for_test.h"

namespace freshet {
namespace {

WeightTransportBackend Backend(const char* name, ClusterRoute route, const char* engines_host) {
  return {name, [route, engines_host](std::vector<std::shared_ptr<WeightSubscriber>> engines) {
            return std::make_unique<ClusterForTest>(
                ClusterTransportOptions{.job = kJob, .route = route, .host = kHost},
                std::move(engines), [engines_host](const std::string& worker, auto subscriber) {
                  return std::make_unique<TestMember>(
                      worker, WeightEndpoint{std::move(subscriber), {}, {}}, engines_host);
                });
          }};
}

// Trainer and engines compute on one GPU.
WeightTransportBackend OnOneGpu() {
  return {"cuda_ipc", [](std::vector<std::shared_ptr<WeightSubscriber>> engines) {
            const auto gpu = std::make_shared<FakeGpu>();
            ClusterTransportOptions options{
                .job = kJob, .route = ClusterRoute::kCudaIpc, .host = kHost};
            options.device_copies =
                std::make_shared<DeviceCopies>(std::make_shared<FakeDeviceMemory>(gpu));
            return std::make_unique<ClusterForTest>(
                std::move(options), std::move(engines),
                [gpu](const std::string& worker, auto subscriber) {
                  WeightEndpoint endpoint{std::move(subscriber), {}, {}};
                  endpoint.device_copies =
                      std::make_shared<DeviceCopyOpener>(std::make_shared<FakeDeviceMemory>(gpu));
                  return std::make_unique<TestMember>(worker, std::move(endpoint));
                });
          }};
}

INSTANTIATE_TEST_SUITE_P(Cluster, WeightTransportContract,
                         testing::Values(OnOneGpu(), Backend("shm", ClusterRoute::kShm, kHost),
                                         Backend("grpc_relay", ClusterRoute::kRelay, kHost),
                                         Backend("auto_on_one_host", ClusterRoute::kAuto, kHost),
                                         Backend("auto_between_hosts", ClusterRoute::kAuto,
                                                 "another-host")),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace freshet
