#include "weights/inprocess_transport.h"

#include "tests/contract/weight_transport_contract.h"

namespace freshet {
namespace {

std::unique_ptr<WeightTransport> Create(
    std::vector<std::shared_ptr<WeightSubscriber>> subscribers) {
  return std::make_unique<InProcessTransport>(std::move(subscribers));
}

INSTANTIATE_TEST_SUITE_P(InProcess, WeightTransportContract,
                         testing::Values(WeightTransportBackend{"inprocess", &Create}),
                         [](const auto& tested) { return tested.param.name; });

TEST(InProcessTransport, EnginesShareThePublishersBytes) {
  const auto a = std::make_shared<WeightSubscriber>();
  const auto b = std::make_shared<WeightSubscriber>();
  InProcessTransport transport({a, b});
  const VersionForTest version = MakeVersion({0, 1}, 1, 1000, 64);
  ASSERT_EQ(transport.Publish(version.Committed()), 2);
  EXPECT_EQ(a->Take()->bytes.get(), version.bytes.get());
  EXPECT_EQ(b->Take()->bytes.get(), version.bytes.get());
}

}  // namespace
}  // namespace freshet
