#ifndef FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_CALLS_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_CALLS_CONTRACT_H_

// Contract tests: the calls of reward components.

#include <atomic>
#include <thread>
#include <vector>

#include "tests/contract/trajectory_store_fixture.h"

namespace freshet {

inline void PrintTo(const ComponentCalls& calls, std::ostream* out) {
  *out << calls.component << ' ' << calls.spent << " refused at " << calls.refused_at;
}

TEST_P(TrajectoryStoreContract, CallsAreCountedUpToTheLimitOfTheirComponent) {
  EXPECT_TRUE(Stats().calls.empty());
  EXPECT_TRUE(*store().calls().Spend("judge", 2));
  EXPECT_TRUE(*store().calls().Spend("judge", 2));
  EXPECT_TRUE(*store().calls().Spend("a b\"\n", 1));
  EXPECT_EQ(Stats().calls, (std::vector<ComponentCalls>{{"a b\"\n", 1, 0}, {"judge", 2, 0}}));
  EXPECT_FALSE(*store().calls().Spend("judge", 2));
  EXPECT_FALSE(*store().calls().Spend("judge", 1));
  EXPECT_EQ(Stats().calls, (std::vector<ComponentCalls>{{"a b\"\n", 1, 0}, {"judge", 2, 2}}));
}

TEST_P(TrajectoryStoreContract, AHigherLimitGrantsCallsAgain) {
  constexpr int64_t kMost = 1'000'000'000'000;
  EXPECT_TRUE(*store().calls().Spend("judge", 1));
  EXPECT_FALSE(*store().calls().Spend("judge", 1));
  EXPECT_TRUE(*store().calls().Spend("judge", kMost));
  EXPECT_EQ(Stats().calls, (std::vector<ComponentCalls>{{"judge", 2, 1}}));
  EXPECT_FALSE(*store().calls().Spend("judge", 2));
  EXPECT_EQ(Stats().calls, (std::vector<ComponentCalls>{{"judge", 2, 2}}));
}

TEST_P(TrajectoryStoreContract, CallsWithoutComponentOrLimitAreRefused) {
  EXPECT_EQ(store().calls().Spend("", 1).status().code(), kInvalid);
  EXPECT_EQ(store().calls().Spend("judge", 0).status().code(), kInvalid);
  EXPECT_TRUE(Stats().calls.empty());
}

TEST_P(TrajectoryStoreContract, OfCallsAtTheSameTimeExactlyTheLimitIsGranted) {
  constexpr int kThreads = 4, kCalls = 10, kMaxCalls = 23;
  CallBudget& calls = store().calls();
  std::atomic<int> granted{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int call = 0; call < kCalls; ++call) {
        const auto spent = calls.Spend("judge", kMaxCalls);
        EXPECT_TRUE(spent.ok()) << spent.status();
        if (spent.ok() && *spent) ++granted;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(granted, kMaxCalls);
  EXPECT_EQ(Stats().calls, (std::vector<ComponentCalls>{{"judge", kMaxCalls, kMaxCalls}}));
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_TRAJECTORY_STORE_CALLS_CONTRACT_H_
