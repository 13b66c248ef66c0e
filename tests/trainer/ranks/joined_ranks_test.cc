#include "trainer/ranks/joined_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <utility>

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
  EXPECT_EQ(joined.Ready(), 2);
  EXPECT_EQ(joined.Missing(), "2");
  const auto taken = joined.Take(3, absl::ZeroDuration());
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].number, 1);
  EXPECT_EQ(taken[1].number, 3);
  EXPECT_EQ(joined.Ready(), 0);
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
  EXPECT_EQ(joined.Ready(), 1);
}

TEST(JoinedRanks, OneThatIsGoneIsNotGiven) {
  JoinedRanks joined(2);
  auto ends = Pair();
  joined.Remove(1, joined.Add(1, std::move(ends.first)));
  EXPECT_TRUE(Closed(ends.second));
  EXPECT_TRUE(joined.Take(1, absl::ZeroDuration()).empty());
}

}  // namespace
}  // namespace freshet
