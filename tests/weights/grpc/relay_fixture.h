#ifndef FRESHET_TESTS_WEIGHTS_GRPC_RELAY_FIXTURE_H_
#define FRESHET_TESTS_WEIGHTS_GRPC_RELAY_FIXTURE_H_

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/log_lines.h"
#include "tests/weights/grpc/weight_plane_fixture.h"
#include "weights/grpc/cluster_transport.h"

namespace freshet {

// A trainer and its engines in one process. The route is the relay unless a test changes options_.
class RelayFixture : public testing::Test {
 protected:
  void StartEngines(int n) {
    for (int i = 0; i < n; ++i) {
      engines_.push_back(MakeEngine(StrCat("engine-", i)));
      members_.push_back(engines_.back()->member());
      members_.back().site = engine_site_;
    }
  }
  // With options_ and members_ as they are at the first call.
  ClusterTransport& Transport() {
    if (transport_ == nullptr) {
      transport_ =
          std::make_unique<ClusterTransport>(options_, TestChannel, SystemClock::Get(), &counters_);
      transport_->SetMembers(1, members_);
    }
    return *transport_;
  }
  TestMember& engine(int i) { return *engines_[static_cast<size_t>(i)]; }

  const LogLines log_;
  // The retry intervals disable background transfers unless a test changes them.
  ClusterTransportOptions options_ = {.job = kJob,
                                      .route = ClusterRoute::kRelay,
                                      .host = kHost,
                                      .silence_timeout = absl::Minutes(1),
                                      .first_retry = absl::Hours(1),
                                      .last_retry = absl::Hours(1)};
  std::string engine_site_;
  std::vector<std::unique_ptr<TestMember>> engines_;
  std::vector<WeightMember> members_;
  WeightSyncCounters counters_;
  std::unique_ptr<ClusterTransport> transport_;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_WEIGHTS_GRPC_RELAY_FIXTURE_H_
