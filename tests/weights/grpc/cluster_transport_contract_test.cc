#include <memory>
#include <utility>
#include <vector>

#include "tests/contract/weight_transport_contract.h"
#include "tests/weights/grpc/weight_plane_fixture.h"
#include "weights/grpc/cluster_transport.h"

namespace freshet {
namespace {

// Engines with their own servers, and a trainer's transport connected to them.
class ClusterForTest final : public WeightTransport {
 public:
  ClusterForTest(ClusterRoute route, const std::string& engines_host,
                 std::vector<std::shared_ptr<WeightSubscriber>> subscribers)
      : transport_({.job = kJob, .route = route, .host = kHost}, TestChannel, SystemClock::Get(),
                   nullptr) {
    std::vector<WeightMember> members;
    for (auto& subscriber : subscribers) {
      engines_.push_back(std::make_unique<TestMember>(StrCat("engine-", engines_.size()),
                                                      WeightEndpoint{std::move(subscriber), {}, {}},
                                                      engines_host));
      members.push_back(engines_.back()->member());
    }
    transport_.SetMembers(1, std::move(members));
  }
  int64_t Prepare(const WeightManifest& manifest, WeightBytes bytes) override {
    return transport_.Prepare(manifest, std::move(bytes));
  }
  void Activate(const CommitReceipt& receipt) override { transport_.Activate(receipt); }

 private:
  std::vector<std::unique_ptr<TestMember>> engines_;
  ClusterTransport transport_;
};

WeightTransportBackend Backend(const char* name, ClusterRoute route, const char* engines_host) {
  return {name, [route, engines_host](std::vector<std::shared_ptr<WeightSubscriber>> engines) {
            return std::make_unique<ClusterForTest>(route, engines_host, std::move(engines));
          }};
}

INSTANTIATE_TEST_SUITE_P(Cluster, WeightTransportContract,
                         testing::Values(Backend("shm", ClusterRoute::kShm, kHost),
                                         Backend("grpc_relay", ClusterRoute::kRelay, kHost),
                                         Backend("auto_on_one_host", ClusterRoute::kAuto, kHost),
                                         Backend("auto_between_hosts", ClusterRoute::kAuto,
                                                 "another-host")),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace freshet
