#ifndef FRESHET_TESTS_CONTRACT_LEADER_LEASE_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_LEADER_LEASE_CONTRACT_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/str_cat.h"
#include "datastore/leader_lease.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"

namespace freshet {

// The implementation under test. `create` returns a free lease that uses the given clock, or null
// if the backend is not available.
struct LeaderLeaseBackend {
  std::string name;
  std::function<std::shared_ptr<LeaderLease>(const Clock&)> create;
};
inline void PrintTo(const LeaderLeaseBackend& backend, std::ostream* out) { *out << backend.name; }

class LeaderLeaseContract : public testing::TestWithParam<LeaderLeaseBackend> {
 protected:
  static constexpr absl::Duration kTtl = absl::Seconds(2);

  void SetUp() override {
    lease_ = GetParam().create(clock_);
    if (lease_ == nullptr) GTEST_SKIP() << "the backend is not installed";
  }
  LeaderLease& lease() { return *lease_; }
  LeaseState Try(const std::string& candidate) {
    const auto state = lease_->TryAcquire(candidate, candidate + ":7070", kTtl);
    EXPECT_TRUE(state.ok()) << state.status();
    return state.value_or(LeaseState{});
  }

  FakeClock clock_;

 private:
  std::shared_ptr<LeaderLease> lease_;
};

TEST_P(LeaderLeaseContract, FirstCandidateLeads) {
  const LeaseState state = Try("a");
  EXPECT_TRUE(state.held);
  EXPECT_GE(state.token, 1);
  EXPECT_EQ(state.leader, "a");
  EXPECT_EQ(state.address, "a:7070");
  EXPECT_EQ(state.remaining, kTtl);
}

TEST_P(LeaderLeaseContract, OthersAreToldWhoLeadsAndForHowLong) {
  const int64_t token = Try("a").token;
  clock_.Advance(absl::Milliseconds(500));
  const LeaseState state = Try("b");
  EXPECT_FALSE(state.held);
  EXPECT_EQ(state.token, token);
  EXPECT_EQ(state.leader, "a");
  EXPECT_EQ(state.address, "a:7070");
  EXPECT_EQ(state.remaining, absl::Milliseconds(1500));
}

TEST_P(LeaderLeaseContract, RenewalKeepsTheTokenAndStartsTheTimeAgain) {
  const int64_t token = Try("a").token;
  for (int i = 0; i < 5; ++i) {
    clock_.Advance(absl::Seconds(1));
    const LeaseState state = Try("a");
    EXPECT_TRUE(state.held);
    EXPECT_EQ(state.token, token);
    EXPECT_EQ(state.remaining, kTtl);
  }
  EXPECT_FALSE(Try("b").held);
}

TEST_P(LeaderLeaseContract, RenewalSetsTheAddress) {
  Try("a");
  ASSERT_TRUE(lease().TryAcquire("a", "elsewhere:1", kTtl).ok());
  EXPECT_EQ(Try("b").address, "elsewhere:1");
}

TEST_P(LeaderLeaseContract, EndedLeaseGoesToTheNextWithALargerToken) {
  const int64_t token = Try("a").token;
  clock_.Advance(kTtl - absl::Microseconds(1));
  EXPECT_FALSE(Try("b").held);
  clock_.Advance(absl::Microseconds(1));
  const LeaseState state = Try("b");
  EXPECT_TRUE(state.held);
  EXPECT_GT(state.token, token);
  const LeaseState former = Try("a");
  EXPECT_FALSE(former.held);
  EXPECT_EQ(former.leader, "b");
}

TEST_P(LeaderLeaseContract, HolderWhoseLeaseEndedTakesItAgainWithALargerToken) {
  const int64_t token = Try("a").token;
  clock_.Advance(kTtl);
  const LeaseState state = Try("a");
  EXPECT_TRUE(state.held);
  EXPECT_GT(state.token, token);
  EXPECT_EQ(state.remaining, kTtl);
  EXPECT_EQ(Try("a").token, state.token) << "a renewal";
}

TEST_P(LeaderLeaseContract, ReleasedLeaseGoesAtOnceToTheNext) {
  const int64_t token = Try("a").token;
  EXPECT_TRUE(lease().Release("a", token).ok());
  const LeaseState state = Try("b");
  EXPECT_TRUE(state.held);
  EXPECT_GT(state.token, token);
}

TEST_P(LeaderLeaseContract, ReleaseByAnotherOrWithAnotherTokenDoesNothing) {
  const int64_t token = Try("a").token;
  EXPECT_TRUE(lease().Release("b", token).ok());
  EXPECT_TRUE(lease().Release("a", token + 1).ok());
  EXPECT_FALSE(Try("b").held);
}

TEST_P(LeaderLeaseContract, ALookTakesNothing) {
  const auto look = [this] {
    const auto state = lease().Look();
    EXPECT_TRUE(state.ok()) << state.status();
    return state.value_or(LeaseState());
  };
  EXPECT_FALSE(look().held);
  EXPECT_EQ(look().leader, "");
  const int64_t token = Try("a").token;
  clock_.Advance(absl::Milliseconds(500));
  const LeaseState state = look();
  EXPECT_FALSE(state.held);
  EXPECT_EQ(state.token, token);
  EXPECT_EQ(state.leader, "a");
  EXPECT_EQ(state.address, "a:7070");
  EXPECT_EQ(state.remaining, absl::Milliseconds(1500)) << "the first look renewed nothing";
  clock_.Advance(absl::Milliseconds(1500));
  EXPECT_EQ(look().leader, "") << "the lease has ended";
  const int64_t second = Try("a").token;
  EXPECT_EQ(second, token + 1) << "a look takes no token";
  ASSERT_TRUE(lease().Release("a", second).ok());
  EXPECT_EQ(look().leader, "");
  EXPECT_EQ(look().address, "");
}

TEST_P(LeaderLeaseContract, TokenGrowsAlsoWhenTheSameCandidateComesBack) {
  const int64_t first = Try("a").token;
  ASSERT_TRUE(lease().Release("a", first).ok());
  const int64_t second = Try("b").token;
  ASSERT_TRUE(lease().Release("b", second).ok());
  const int64_t third = Try("a").token;
  EXPECT_GT(third, second);
  ASSERT_TRUE(lease().Release("a", third).ok());
  EXPECT_GT(Try("a").token, third) << "nobody led in between";
}

TEST_P(LeaderLeaseContract, BadArgumentsAreRefused) {
  const auto bad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(lease().TryAcquire("", "x", kTtl).status().code(), bad);
  EXPECT_EQ(lease().TryAcquire("a", "x", absl::ZeroDuration()).status().code(), bad);
  EXPECT_EQ(lease().TryAcquire("a", "x", kMaxLeaderTtl + absl::Milliseconds(1)).status().code(),
            bad);
}

TEST_P(LeaderLeaseContract, OfConcurrentCandidatesExactlyOneLeads) {
  std::vector<LeaseState> states(6);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < states.size(); ++t) {
      threads.emplace_back([&, t] { states[t] = Try(StrCat("candidate-", t)); });
    }
  }
  EXPECT_EQ(std::count_if(states.begin(), states.end(), [](const auto& s) { return s.held; }), 1);
  for (const LeaseState& state : states) EXPECT_EQ(state.leader, states[0].leader);
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_LEADER_LEASE_CONTRACT_H_
