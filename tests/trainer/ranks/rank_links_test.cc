#include "trainer/ranks/rank_links.h"

#include <sys/socket.h>

#include <thread>
#include <utility>

#include "tests/trainer/learner/policy_learner_fixture.h"
#include "trainer/ranks/data_parallel_learner.h"
#include "trainer/ranks/joined_rank_starter.h"
#include "trainer/ranks/message_socket.h"
#include "trainer/ranks/rank_follower.h"

namespace freshet {
namespace {

using trainer::v1::RankCommand;
using trainer::v1::RankReport;

constexpr absl::Duration kPatience = absl::Minutes(2);

std::pair<UniqueFd, UniqueFd> SocketEnds() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

class RankLinksTest : public PolicyLearnerFixture {
 protected:
  // Joins as rank `number`, and again after each group, until the test ends.
  void Join(int number) {
    ranks_.emplace_back([this, number](std::stop_token stop) {
      UseOneTorchThread();
      while (!stop.stop_requested()) {
        auto [ours, theirs] = SocketEnds();
        joined_->Add(number, std::move(ours));
        MessageSocket socket(std::move(theirs));
        RankParts parts;
        parts.make_learner = [this](const auto&) {
          return PolicyLearner::Create(options_, SystemClock::Get());
        };
        const std::stop_callback leave(stop, [&socket] { socket.Shutdown(); });
        (void)RunRank(socket, parts);
      }
    });
  }

  const std::shared_ptr<JoinedRanks> joined_ = std::make_shared<JoinedRanks>(4);
  std::vector<std::jthread> ranks_;
};

TEST_F(RankLinksTest, RanksThatJoinTrainAsOneDoes) {
  const auto alone = MakeLearner();
  const std::shared_ptr<PolicyLearner> policy = MakeLearner();
  DataParallelLearner learner(
      policy, std::make_unique<JoinedRankStarter>(joined_, RankLinkOptions()), /*ranks=*/3);
  Join(3);
  Join(1);
  for (int64_t step = 1; step <= 2; ++step) {
    const auto groups = OnPolicyGroups(*alone, 5, static_cast<uint64_t>(step));
    const auto expected = alone->TrainStep(step, groups);
    const auto result = learner.TrainStep(step, groups);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->ranks, 3);
    EXPECT_THAT(result->lost_ranks, testing::IsEmpty());
    EXPECT_NEAR(result->grad_norm, expected->grad_norm, 1e-4 * expected->grad_norm);
  }
  std::vector<int> numbers;
  for (const RankState& rank : learner.Ranks()) numbers.push_back(rank.rank);
  EXPECT_THAT(numbers, testing::ElementsAre(0, 1, 3));
}

TEST_F(RankLinksTest, ARankThatSaysNothingEndsTheGroup) {
  auto [ours, theirs] = SocketEnds();
  MessageSocket rank(std::move(theirs));
  RankReport joining;
  joining.set_state(RankReport::STATE_JOINING);
  ASSERT_TRUE(rank.Send(joining, kPatience).ok());
  std::vector<RankLink> links;
  links.push_back({2, std::move(ours), std::make_unique<RankPeer>()});
  RankLinkOptions options;
  options.silence = absl::Milliseconds(100);
  std::atomic<int> lost = 0;
  options.on_loss = [&lost](int number) { lost = number; };
  const auto group = ConnectRanks(std::move(links), options);
  ASSERT_TRUE(group.ok()) << group.status();
  constexpr char kReason[] = "rank 2 has said nothing for 100ms";
  EXPECT_EQ((*group)->LossReason(kPatience), kReason);
  EXPECT_EQ((*group)->communicator().Barrier(kPatience).message(), kReason);
  EXPECT_EQ((*group)->Reports().at(0).state(), RankReport::STATE_FAILED);
}

TEST_F(RankLinksTest, ARankThatLeavesIsNamedWithItsReason) {
  auto [ours, theirs] = SocketEnds();
  MessageSocket rank(std::move(theirs));
  RankReport report;
  report.set_state(RankReport::STATE_JOINING);
  ASSERT_TRUE(rank.Send(report, kPatience).ok());
  std::vector<RankLink> links;
  links.push_back({2, std::move(ours), std::make_unique<RankPeer>()});
  const auto group = ConnectRanks(std::move(links), RankLinkOptions());
  ASSERT_TRUE(group.ok()) << group.status();
  report.set_state(RankReport::STATE_LEFT);
  report.set_error("no memory");
  ASSERT_TRUE(rank.Send(report, kPatience).ok());
  const absl::Status gone = (*group)->communicator().Barrier(kPatience);
  EXPECT_EQ(gone, absl::UnavailableError("rank 2 has left: no memory"));
}

}  // namespace
}  // namespace freshet
