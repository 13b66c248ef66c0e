#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/contract/weight_transport_contract.h"
#include "tests/weights/cuda/fake_gpu.h"
#include "tests/weights/grpc/cluster_for_test.h"
#include "weights/cuda/device_copies.h"
#include "weights/cuda/device_copy_opener.h"
#include "weights/shm/memory_file.h"

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

// Trainer and engines on one GPU. The trainer has its versions in memory files.
class OneGpu final : public WeightTransport {
 public:
  explicit OneGpu(std::vector<std::shared_ptr<WeightSubscriber>> engines)
      : cluster_(Options(), std::move(engines), [this](const std::string& worker, auto subscriber) {
          WeightEndpoint endpoint{std::move(subscriber), {}, {}};
          endpoint.device_copies =
              std::make_shared<DeviceCopyOpener>(std::make_shared<FakeDeviceMemory>(gpu_));
          return std::make_unique<TestMember>(worker, std::move(endpoint));
        }) {}
  ~OneGpu() override { EXPECT_EQ(gpu_->freed_while_open(), 0); }

  int64_t Publish(const CommittedWeights& version) override {
    const auto& [manifest, bytes] = version.snapshot;
    WeightManifest staged;
    return cluster_.Publish(
        {{manifest, stager_.Stage(*bytes, manifest.bucket_bytes, staged).value()},
         version.receipt});
  }

 private:
  ClusterTransportOptions Options() const {
    ClusterTransportOptions options{.job = kJob, .route = ClusterRoute::kCudaIpc, .host = kHost};
    options.device_copies =
        std::make_shared<DeviceCopies>(std::make_shared<FakeDeviceMemory>(gpu_));
    options.device_copies->Start(2);
    return options;
  }

  const std::shared_ptr<FakeGpu> gpu_ = std::make_shared<FakeGpu>();
  MemoryFileStager stager_;
  ClusterForTest cluster_;
};

WeightTransportBackend OnOneGpu() {
  return {"cuda_ipc", [](std::vector<std::shared_ptr<WeightSubscriber>> engines) {
            return std::make_unique<OneGpu>(std::move(engines));
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
