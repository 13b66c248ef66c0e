#include "trainer/ranks/rank_links.h"

#include <cstring>
#include <thread>
#include <utility>

#include "base/message_socket.h"
#include "base/str_cat.h"
#include "collective/gloo_backend.h"
#include "tests/trainer/learner/policy_learner_fixture.h"
#include "tests/trainer/ranks/batch_store.h"
#include "trainer/ranks/data_parallel_learner.h"
#include "trainer/ranks/joined_rank_starter.h"
#include "trainer/ranks/rank_follower.h"
#include "trainer/ranks/relay_inbox.h"

namespace freshet {
namespace {

using trainer::v1::RankReport;

constexpr absl::Duration kPatience = absl::Minutes(2);

class RankLinksTest : public PolicyLearnerFixture {
 protected:
  // Joins as rank `number`, and again after each group, until the test ends.
  void Join(int number) {
    ranks_.emplace_back([this, number](std::stop_token stop) {
      UseOneTorchThread();
      while (!stop.stop_requested()) {
        auto [ours, theirs] = *SocketPair();
        joined_->Add(number, std::move(ours));
        MessageSocket socket(std::move(theirs));
        RankParts parts;
        parts.make_learner = [this](const auto&) {
          return PolicyLearner::Create(options_, SystemClock::Get());
        };
        parts.open_backend = [](const std::string&) { return MakeGlooBackend(); };
        parts.open_store = OpensBatch(batch_);
        const std::stop_callback leave(stop, [&socket] { socket.Shutdown(); });
        (void)RunRank(socket, parts);
      }
    });
  }

  // Connects to rank 2, which is about to join; the test is this rank, behind `rank_`.
  absl::StatusOr<std::unique_ptr<RankGroup>> ConnectRankTwo(const RankLinkOptions& options) {
    auto [ours, theirs] = *SocketPair();
    rank_ = std::make_unique<MessageSocket>(std::move(theirs));
    RankReport joining;
    joining.set_state(RankReport::STATE_JOINING);
    EXPECT_TRUE(rank_->Send(joining, kPatience).ok());
    std::vector<RankLink> links;
    links.push_back({2, std::move(ours), std::make_unique<RankPeer>()});
    return ConnectRanks(std::move(links), options);
  }

  // Takes what the ranks send as an engine does, and compares it with the arena.
  void ExpectShardsOfTheArena(Sharding sharding) {
    options_.sharding = sharding;
    const std::shared_ptr<PolicyLearner> policy = MakeLearner();
    auto learner = std::make_unique<DataParallelLearner>(
        policy, std::make_unique<JoinedRankStarter>(joined_, RankLinkOptions()), /*ranks=*/3,
        /*shards=*/true);
    Join(1);
    Join(2);
    EXPECT_EQ(learner->Shards(), nullptr);
    const auto groups = OnPolicyGroups(*MakeLearner(), 5);
    ASSERT_TRUE(learner->TrainStep(1, groups).ok());
    const std::string arena(*learner->Arena());
    const std::shared_ptr<WeightShards> shards = learner->Shards();
    ASSERT_NE(shards, nullptr);
    ASSERT_EQ(shards->ranges().size(), 3U);
    // The next version is staged beside this one.
    ASSERT_TRUE(learner->TrainStep(2, groups).ok());
    const std::string next(*learner->Arena());
    EXPECT_NE(next, arena);
    EXPECT_EQ(Receive(*shards, arena, "first"), arena);
    EXPECT_EQ(Receive(*learner->Shards(), next, "second"), next);
    EXPECT_EQ(learner->Shards()->senders(), shards->senders());
    ASSERT_TRUE(learner->Arena().ok());
    EXPECT_EQ(Receive(*learner->Shards(), next, "third"), next);
    EXPECT_EQ(Send(*shards, 1, {"late", 2, "", 1, kPatience}).code(), absl::StatusCode::kNotFound);
    learner = nullptr;
    EXPECT_EQ(Send(*shards, 2, {"left", 2, "", 1, kPatience}).code(), absl::StatusCode::kCancelled);
  }
  absl::Status Send(
      WeightShards& shards, size_t sender, const SendOrder& order,
      const std::function<void()>& meanwhile = [] {}) {
    Notification ended;
    absl::Status result;
    shards.Send(sender, "gloo", order, kPatience, [&](const absl::Status& status) {
      result = status;
      ended.Notify();
    });
    meanwhile();
    EXPECT_TRUE(ended.WaitFor(kPatience));
    return result;
  }
  // The senders' bytes, and rank 0's of `arena`.
  std::string Receive(WeightShards& shards, const std::string& arena, const std::string& group) {
    constexpr int64_t kPiece = 10'000;
    std::string received(arena.size(), '\0');
    for (const ByteRange& range : shards.ranges()[0]) {
      arena.copy(received.data() + range.first, static_cast<size_t>(range.size),
                 static_cast<size_t>(range.first));
    }
    const auto gloo = MakeGlooBackend();
    for (size_t sender = 1; sender < shards.ranges().size(); ++sender) {
      const std::string rendezvous = *gloo->NewRendezvous();
      std::unique_ptr<Communicator> engine;  // stays in the group, as engines do
      const absl::Status sent =
          Send(shards, sender, {group, 2, rendezvous, kPiece, kPatience}, [&] {
            engine = *gloo->Connect({1, 2, rendezvous, kPatience});
            for (const ByteRange& range : shards.ranges()[sender]) {
              for (int64_t at = 0; at < range.size; at += kPiece) {
                const auto size = static_cast<size_t>(std::min(kPiece, range.size - at));
                char* const to = received.data() + range.first + at;
                EXPECT_TRUE(engine
                                ->Broadcast(std::as_writable_bytes(std::span(to, size)), /*root=*/0,
                                            kPatience)
                                .ok());
              }
            }
          });
      EXPECT_TRUE(sent.ok()) << sent;
    }
    return received;
  }

  const std::shared_ptr<StoredBatch> batch_ = std::make_shared<StoredBatch>();
  std::unique_ptr<MessageSocket> rank_;
  const std::shared_ptr<JoinedRanks> joined_ = std::make_shared<JoinedRanks>(4);
  std::vector<std::jthread> ranks_;
};

TEST(RelayInboxTest, TakesEverythingWhileItIsUnbounded) {
  RelayInbox inbox;
  inbox.SetBounded(false);
  for (int chunk = 0; chunk < 100; ++chunk) inbox.Put(StrCat(chunk));  // must not wait
  inbox.SetBounded(true);
  for (int chunk = 0; chunk < 100; ++chunk) {
    EXPECT_EQ(*inbox.Take(absl::ZeroDuration()), StrCat(chunk));
  }
}

TEST(RankWaitTest, IsTheJobsOrFollowsFromWhatItWaitsFor) {
  constexpr int64_t kGigabyte = 1'000'000'000;
  EXPECT_EQ(RankWait(/*first=*/true, 3 * kGigabyte, {}), absl::Minutes(2));
  EXPECT_EQ(RankWait(/*first=*/false, 3 * kGigabyte, {}), absl::Seconds(13));
  EXPECT_EQ(RankWait(/*first=*/true, 3 * kGigabyte, absl::ZeroDuration()), absl::ZeroDuration());
  EXPECT_EQ(RankWait(/*first=*/false, 3 * kGigabyte, absl::Seconds(90)), absl::Seconds(90));
}

TEST_F(RankLinksTest, ARankThatCannotReadItsSamplesGetsTheirTokensFromRankZero) {
  options_.minibatches_per_step = 2;
  const auto alone = MakeLearner();
  const std::shared_ptr<PolicyLearner> policy = MakeLearner();
  RankLinkOptions options;
  options.start.set_job("job");
  DataParallelLearner learner(policy, std::make_unique<JoinedRankStarter>(joined_, options),
                              /*ranks=*/2);
  Join(1);
  for (int64_t step = 1; step <= 2; ++step) {
    const auto groups = OnPolicyGroups(*alone, 5, static_cast<uint64_t>(step));
    const auto expected = alone->TrainStep(step, groups);
    batch_->Set(step == 1 ? std::vector<TrainGroup>() : groups);
    if (step == 2) batch_->Fail({absl::DataLossError("bytes \xff are gone")});
    const auto result = learner.TrainStep(step, groups);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->ranks, 2);
    EXPECT_THAT(result->lost_ranks, testing::IsEmpty());
    EXPECT_NEAR(result->grad_norm, expected->grad_norm, 1e-4 * expected->grad_norm);
  }
  EXPECT_THAT(batch_->read(), testing::Not(testing::IsEmpty())) << "what could be read";
}

TEST_F(RankLinksTest, ARankThatAsksForTokensThatItHasIsLost) {
  RankLinkOptions options;
  const auto group = ConnectRankTwo(options);
  ASSERT_TRUE(group.ok()) << group.status();
  RankReport report;
  report.set_needs_tokens("");
  ASSERT_TRUE(rank_->Send(report, kPatience).ok());
  EXPECT_THAT((*group)->LossReason(kPatience), testing::HasSubstr("rank 2 takes no tokens"));
}

TEST_F(RankLinksTest, AStopEndsTheWaitForRanks) {
  DataParallelLearner learner(
      MakeLearner(), std::make_unique<JoinedRankStarter>(joined_, RankLinkOptions()), /*ranks=*/2);
  const auto groups = OnPolicyGroups(*MakeLearner(), 5, 1);
  const std::jthread stopping([&learner] {
    while (learner.WaitsFor().empty()) std::this_thread::yield();
    learner.Stop();
  });
  EXPECT_TRUE(absl::IsCancelled(learner.TrainStep(1, groups).status()));
}

TEST_F(RankLinksTest, RanksThatJoinTrainAsOneDoes) {
  const auto alone = MakeLearner();
  const std::shared_ptr<PolicyLearner> policy = MakeLearner();
  RankLinkOptions options;
  options.start.set_job("job");
  DataParallelLearner learner(policy, std::make_unique<JoinedRankStarter>(joined_, options),
                              /*ranks=*/3);
  Join(3);
  Join(1);
  for (int64_t step = 1; step <= 2; ++step) {
    const auto groups = OnPolicyGroups(*alone, 5, static_cast<uint64_t>(step));
    const auto expected = alone->TrainStep(step, groups);
    batch_->Set(groups);
    const auto result = learner.TrainStep(step, groups);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->ranks, 3);
    EXPECT_THAT(result->lost_ranks, testing::IsEmpty());
    EXPECT_NEAR(result->grad_norm, expected->grad_norm, 1e-4 * expected->grad_norm);
  }
  EXPECT_THAT(batch_->read(), testing::Not(testing::IsEmpty())) << "their samples";
  std::vector<int> numbers;
  for (const RankState& rank : learner.Ranks()) numbers.push_back(rank.rank);
  EXPECT_THAT(numbers, testing::ElementsAre(0, 1, 3));
}

// Gloo, but rank 2 dies when this rank begins to connect.
class GlooWithoutRankTwo final : public CommunicatorBackend {
 public:
  explicit GlooWithoutRankTwo(std::unique_ptr<MessageSocket>& rank) : rank_(rank) {}
  absl::StatusOr<std::string> NewRendezvous() override { return gloo_->NewRendezvous(); }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const GroupPlace& place) override {
    GroupPlace patient = place;
    patient.timeout = kPatience;
    rank_ = nullptr;
    return gloo_->Connect(patient);
  }

 private:
  const std::shared_ptr<CommunicatorBackend> gloo_ = MakeGlooBackend();
  std::unique_ptr<MessageSocket>& rank_;
};

TEST_F(RankLinksTest, ARankThatDiesWhileTheGroupConnectsEndsThat) {
  RankLinkOptions options;
  options.start.set_backend("gloo");
  options.backend = std::make_shared<GlooWithoutRankTwo>(rank_);
  const absl::Status lost = ConnectRankTwo(options).status();
  EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
  EXPECT_NE(lost.message().find("rank 2 is gone"), std::string::npos) << lost;
}

// A snapshot's blocks pass through the links between the operations of the next step.
TEST_F(RankLinksTest, ASnapshotOfRanksThatJoinedIsReadDuringTheNextStep) {
  const auto alone = MakeLearner();
  options_.sharding = Sharding::kFull;
  const std::shared_ptr<PolicyLearner> policy = MakeLearner();
  DataParallelLearner learner(
      policy, std::make_unique<JoinedRankStarter>(joined_, RankLinkOptions()), /*ranks=*/2);
  Join(1);
  const auto groups = OnPolicyGroups(*alone, 5);
  Train(*alone, 1, groups);
  ASSERT_TRUE(learner.TrainStep(1, groups).ok());
  const auto snapshot = *learner.Snapshot();
  std::vector<float> masters;
  std::jthread reading([&] {
    snapshot->copy();
    for (const StateTensor& tensor : snapshot->model) {
      const auto bytes = tensor.Read();
      ASSERT_TRUE(bytes.ok()) << bytes.status();
      const size_t begin = masters.size();
      masters.resize(begin + bytes->size() / sizeof(float));
      std::memcpy(masters.data() + begin, bytes->data(), bytes->size());
    }
  });
  ASSERT_TRUE(learner.TrainStep(2, groups).ok());
  reading.join();
  EXPECT_LT(MaxDifference(masters, Weights(*alone)), 1e-5);
}

TEST_F(RankLinksTest, EveryRankSendsItsShardOfTheWeights) {
  ExpectShardsOfTheArena(Sharding::kNone);
}

TEST_F(RankLinksTest, ARankThatHoldsAPartOfTheWeightsSendsThat) {
  ExpectShardsOfTheArena(Sharding::kFull);
}

TEST_F(RankLinksTest, ARankThatSaysNothingEndsTheGroup) {
  RankLinkOptions options;
  options.silence = absl::Milliseconds(100);
  Notification lost;
  options.on_loss = [&lost](int number) {
    EXPECT_EQ(number, 2);
    lost.Notify();
  };
  const auto group = ConnectRankTwo(options);
  ASSERT_TRUE(group.ok()) << group.status();
  constexpr char kReason[] = "rank 2 has said nothing for 100ms";
  EXPECT_EQ((*group)->LossReason(kPatience), kReason);
  EXPECT_EQ((*group)->communicator().Barrier(kPatience).message(), kReason);
  EXPECT_EQ((*group)->Reports().at(0).state(), RankReport::STATE_FAILED);
  EXPECT_TRUE(lost.WaitFor(kPatience));
}

TEST_F(RankLinksTest, ARankThatLeavesIsNamedWithItsReason) {
  const auto group = ConnectRankTwo(RankLinkOptions());
  ASSERT_TRUE(group.ok()) << group.status();
  RankReport report;
  report.set_state(RankReport::STATE_LEFT);
  report.set_error("no memory");
  ASSERT_TRUE(rank_->Send(report, kPatience).ok());
  const absl::Status gone = (*group)->communicator().Barrier(kPatience);
  EXPECT_EQ(gone, absl::UnavailableError("rank 2 has left: no memory"));
}

}  // namespace
}  // namespace freshet
