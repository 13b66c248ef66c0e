#ifndef FRESHET_TESTS_WEIGHTS_GRPC_CLUSTER_FOR_TEST_H_
#define FRESHET_TESTS_WEIGHTS_GRPC_CLUSTER_FOR_TEST_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/weights/grpc/weight_plane_fixture.h"
#include "weights/grpc/cluster_transport.h"

namespace freshet {

// Engines with their own servers, and a trainer's transport connected to them.
class ClusterForTest final : public WeightTransport {
 public:
  using MakeMember = std::function<std::unique_ptr<TestMember>(const std::string& worker,
                                                               std::shared_ptr<WeightSubscriber>)>;

  ClusterForTest(ClusterTransportOptions options,
                 std::vector<std::shared_ptr<WeightSubscriber>> subscribers,
                 const MakeMember& make_member)
      : transport_(std::move(options), TestChannel, SystemClock::Get(), nullptr) {
    std::vector<WeightMember> members;
    for (auto& subscriber : subscribers) {
      engines_.push_back(make_member(StrCat("engine-", engines_.size()), std::move(subscriber)));
      members.push_back(engines_.back()->member());
    }
    transport_.SetMembers(1, std::move(members));
  }
  int64_t Publish(const CommittedWeights& version) override { return transport_.Publish(version); }

 private:
  std::vector<std::unique_ptr<TestMember>> engines_;
  ClusterTransport transport_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_WEIGHTS_GRPC_CLUSTER_FOR_TEST_H_
