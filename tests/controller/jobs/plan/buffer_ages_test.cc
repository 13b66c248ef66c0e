#include "controller/jobs/plan/buffer_ages.h"

#include "gtest/gtest.h"

namespace freshet {
namespace {

constexpr auto kReady = static_cast<size_t>(GroupState::kReady);

class BufferAgesTest : public testing::Test {
 protected:
  // Advances by 1 s in which `in` groups enter the state and `out` leave it.
  void Pass(int64_t in, int64_t out) {
    now_ += absl::Seconds(1);
    stats_.transitions[kReady] += in;
    stats_.groups[kReady] += in - out;
    ages_.Take(stats_, now_);
  }
  absl::Duration Age() const { return now_ - ages_.oldest(GroupState::kReady); }

  absl::Time now_ = absl::UnixEpoch();
  StoreStats stats_;
  BufferAges ages_;
};

TEST_F(BufferAgesTest, AnEmptyStateHasNoOldest) {
  Pass(0, 0);
  EXPECT_EQ(ages_.oldest(GroupState::kReady), absl::InfiniteFuture());
  Pass(2, 2);
  EXPECT_EQ(ages_.oldest(GroupState::kReady), absl::InfiniteFuture());
}

TEST_F(BufferAgesTest, TheOldestIsTheFirstThatCameAndHasNotLeft) {
  Pass(2, 0);
  EXPECT_EQ(Age(), absl::ZeroDuration());
  Pass(3, 0);
  EXPECT_EQ(Age(), absl::Seconds(1));
  Pass(0, 1);
  EXPECT_EQ(Age(), absl::Seconds(2));  // one of the first two remains
  Pass(0, 1);
  EXPECT_EQ(Age(), absl::Seconds(2));  // only groups of the second reading remain
  Pass(0, 3);
  EXPECT_EQ(ages_.oldest(GroupState::kReady), absl::InfiniteFuture());
  Pass(1, 0);
  EXPECT_EQ(Age(), absl::ZeroDuration());
}

TEST_F(BufferAgesTest, OneThatIsStuckWhileOthersPassDoesNotShow) {
  Pass(1, 0);
  for (int i = 0; i < 100; ++i) Pass(1, 1);
  EXPECT_EQ(Age(), absl::ZeroDuration());
  for (int i = 0; i < 100; ++i) Pass(0, 0);
  EXPECT_EQ(Age(), absl::Seconds(100));  // no group moved
}

TEST_F(BufferAgesTest, GroupsThatWereThereBeforeCountFromTheFirstReading) {
  stats_.transitions[kReady] = 100;
  stats_.groups[kReady] = 10;
  Pass(0, 0);
  Pass(5, 5);
  EXPECT_EQ(Age(), absl::Seconds(1));
  Pass(0, 5);
  EXPECT_EQ(Age(), absl::Seconds(1));
}

TEST_F(BufferAgesTest, ALongQueueKeepsItsAge) {
  for (int i = 0; i < 5000; ++i) Pass(1, 0);
  EXPECT_EQ(Age(), absl::Seconds(4999));
  Pass(0, 2500);
  EXPECT_NEAR(absl::ToDoubleSeconds(Age()), 2500, 40);
}

TEST_F(BufferAgesTest, StatesThatNothingLeavesHaveNoAge) {
  stats_.transitions[static_cast<size_t>(GroupState::kDurable)] = 7;
  stats_.groups[static_cast<size_t>(GroupState::kDurable)] = 7;
  Pass(0, 0);
  EXPECT_EQ(ages_.oldest(GroupState::kDurable), absl::InfiniteFuture());
}

}  // namespace
}  // namespace freshet
