#include "trainer/ranks/joined_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <stop_token>
#include <thread>
#include <utility>

#include "tests/testing/fake_clock.h"

namespace freshet {
namespace {

// The end that a process offers, and the other one.
std::pair<UniqueFd, UniqueFd> Pair() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool Closed(const UniqueFd& other) {
  char byte = 0;
  return ::recv(other.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

TEST(JoinedRanks, GivesThoseThatWaitInTheOrderOfTheirNumbers) {
  JoinedRanks joined(4);
  auto third = Pair();
  auto first = Pair();
  joined.Add(3, std::move(third.first));
  joined.Add(1, std::move(first.first));
  EXPECT_THAT(joined.Ready(), testing::ElementsAre(1, 3));
  EXPECT_EQ(joined.Missing(), "2");
  const auto taken = joined.Take(3, absl::ZeroDuration());
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].number, 1);
  EXPECT_EQ(taken[1].number, 3);
  EXPECT_THAT(joined.Ready(), testing::IsEmpty());
  EXPECT_TRUE(joined.Take(3, absl::ZeroDuration()).empty());
  EXPECT_FALSE(Closed(first.second));
}

TEST(JoinedRanks, ARestartedProcessReplacesItsFormerSelf) {
  JoinedRanks joined(2);
  auto former = Pair();
  auto now = Pair();
  const int64_t id = joined.Add(1, std::move(former.first));
  joined.Add(1, std::move(now.first));
  EXPECT_TRUE(Closed(former.second));
  joined.Remove(1, id);  // the former stream ends later
  EXPECT_THAT(joined.Ready(), testing::ElementsAre(1));
}

TEST(JoinedRanks, OneThatIsGoneIsNotGiven) {
  JoinedRanks joined(2);
  auto ends = Pair();
  joined.Remove(1, joined.Add(1, std::move(ends.first)));
  EXPECT_TRUE(Closed(ends.second));
  EXPECT_TRUE(joined.Take(1, absl::ZeroDuration()).empty());
}

TEST(JoinedRanks, OneThatIsLostAgainAndAgainIsNotGivenForAWhile) {
  FakeClock clock;
  JoinedRanks joined(3, clock);
  auto first = Pair();
  joined.Add(1, std::move(first.first));
  joined.NoteLoss(1);
  EXPECT_THAT(joined.Ready(), testing::ElementsAre(1)) << "it may have been restarted";
  joined.NoteLoss(1);
  EXPECT_THAT(joined.Ready(), testing::IsEmpty());
  EXPECT_EQ(joined.Missing(), "1, 2");
  EXPECT_TRUE(joined.Take(1, absl::ZeroDuration()).empty());
  clock.Advance(absl::Seconds(10));
  EXPECT_THAT(joined.Ready(), testing::ElementsAre(1));
  joined.NoteLoss(1);
  clock.Advance(absl::Seconds(10));
  EXPECT_THAT(joined.Ready(), testing::IsEmpty());
  clock.Advance(absl::Minutes(11));
  joined.NoteLoss(1);
  EXPECT_THAT(joined.Ready(), testing::ElementsAre(1)) << "earlier losses are forgotten";
}

TEST(JoinedRanks, AfterAStopNoneIsGiven) {
  JoinedRanks joined(2);
  auto first = Pair();
  joined.Add(1, std::move(first.first));
  joined.Stop();
  EXPECT_TRUE(joined.Take(1, absl::Minutes(1)).empty());
}

TEST(JoinedRanks, AStopEndsAWait) {
  JoinedRanks joined(2);
  std::stop_source stop;
  std::thread stopping([&] { stop.request_stop(); });
  EXPECT_TRUE(joined.Take(1, absl::Minutes(10), stop.get_token()).empty());
  stopping.join();
  auto first = Pair();
  joined.Add(1, std::move(first.first));
  EXPECT_TRUE(joined.Take(1, absl::Minutes(10), stop.get_token()).empty());
  EXPECT_EQ(joined.Take(1, absl::ZeroDuration()).size(), 1U) << "for the next job";
}

}  // namespace
}  // namespace freshet
