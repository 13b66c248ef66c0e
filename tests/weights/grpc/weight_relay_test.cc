#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"
#include "tests/weights/grpc/relay_fixture.h"

namespace freshet {
namespace {

using Error = PrepareProxy::Error;

// Timeout of a silent member. Working members answer faster, even on a busy machine.
constexpr absl::Duration kShortSilence = absl::Seconds(2);

// A port that accepts connections and never sends anything.
class MutePort {
 public:
  MutePort() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 16), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = StrCat("127.0.0.1:", ntohs(address.sin_port));
  }
  ~MutePort() { ::close(fd_); }
  const std::string& address() const { return address_; }

 private:
  const int fd_;
  std::string address_;
};

// An engine that refuses every version, but not before another one has activated it.
class WaitingEngine final : public weights::v1::WeightService::Service {
 public:
  explicit WaitingEngine(Notification& activated) : activated_(activated) {}
  grpc::Status PrepareShared(grpc::ServerContext*, const weights::v1::PrepareSharedRequest*,
                             weights::v1::PrepareReply*) override {
    return Wait();
  }
  grpc::Status Prepare(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<weights::v1::PrepareReply, weights::v1::PrepareRequest>*) override {
    return Wait();
  }
  int waits() const { return waits_; }

 private:
  grpc::Status Wait() {
    if (activated_.WaitFor(absl::Seconds(30))) ++waits_;
    return {grpc::StatusCode::FAILED_PRECONDITION, "refused"};
  }
  Notification& activated_;
  std::atomic<int> waits_ = 0;
};

// A chain of engines, some of which can be made to fail.
class WeightRelayTest : public RelayFixture {
 protected:
  static constexpr int64_t kBytes = (5 << 20) + 3;

  ~WeightRelayTest() override { transport_ = nullptr; }  // before the proxies
  // Routes calls of engine `i` through a proxy from now on.
  PrepareProxy& Spoil(int i, Error error, int at = 0) {
    const auto index = static_cast<size_t>(i);
    proxies_.push_back(std::make_unique<PrepareProxy>(error, at, members_[index].address));
    proxy_servers_.push_back(std::make_unique<LoopbackServer>(proxies_.back().get()));
    members_[index].address = proxy_servers_.back()->address();
    return *proxies_.back();
  }
  int64_t Publish(int64_t number, int64_t size = kBytes) {
    const VersionForTest version = MakeVersion({0, number}, 1, size, 64 << 10);
    return Transport().Publish(version.Committed());
  }
  bool Holds(int i, int64_t number) {
    const auto committed = engine(i).subscriber().Committed();
    return committed.has_value() && committed->snapshot.manifest.policy.version == number &&
           VerifyBuckets(committed->snapshot.manifest, *committed->snapshot.bytes).ok();
  }
  // The newest logged failure of a member.
  std::string ErrorOf(const std::string& worker) {
    const auto missed = log_.With(StrCat("event=weights_missed member=", worker, " "));
    return missed.empty() ? "" : missed.back();
  }

  std::vector<std::unique_ptr<PrepareProxy>> proxies_;
  std::vector<std::unique_ptr<LoopbackServer>> proxy_servers_;
};

TEST_F(WeightRelayTest, AnEngineActivatesAVersionBeforeASlowerOneHasIt) {
  for (const ClusterRoute route : {ClusterRoute::kRelay, ClusterRoute::kShm}) {
    Notification activated;
    TestMember fast("fast",
                    {std::make_shared<WeightSubscriber>([&] { activated.Notify(); }), {}, {}});
    WaitingEngine slow(activated);
    const LoopbackServer server(&slow);
    options_.route = route;
    members_ = {fast.member(), {"slow", server.address(), "", "another site"}};
    EXPECT_EQ(Publish(1), 1);
    EXPECT_EQ(slow.waits(), 1);
    transport_ = nullptr;
  }
}

TEST_F(WeightRelayTest, ChainsOfTwoToFourEnginesPassEveryVersionOn) {
  for (int n = 2; n <= 4; ++n) {
    engines_.clear();
    members_.clear();
    transport_.reset();
    counters_.OnBytes(-counters_.totals().bytes);
    StartEngines(n);
    for (int64_t v = 1; v <= 3; ++v) {
      ASSERT_EQ(Publish(v), n);
      for (int i = 0; i < n; ++i) EXPECT_TRUE(Holds(i, v)) << "engine " << i;
    }
    // The trainer sends each version once; each engine but the last relays it once.
    EXPECT_EQ(counters_.totals().bytes, 3 * kBytes);
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(engine(i).counters().totals().bytes, i + 1 < n ? 3 * kBytes : 0) << i;
    }
  }
}

TEST_F(WeightRelayTest, AVersionEntersEachSiteOnce) {
  StartEngines(6);
  for (const int i : {1, 3, 5}) members_[static_cast<size_t>(i)].site = "far";
  for (int64_t v = 1; v <= 3; ++v) {
    ASSERT_EQ(Publish(v), 6);
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(Holds(i, v)) << "engine " << i;
  }
  // The trainer sends each version to engines 0 and 1. The others get it from their own site:
  // 0 -> 2 -> 4 and 1 -> 3 -> 5.
  EXPECT_EQ(counters_.totals().bytes, 2 * 3 * kBytes);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(engine(i).counters().totals().bytes, i < 4 ? 3 * kBytes : 0) << i;
  }
  EXPECT_EQ(log_.With("event=relay_plan").size(), 1U);
}

TEST_F(WeightRelayTest, AVersionEntersASiteOnceThoughAMemberIsDead) {
  for (const int dead : {1, 3, 5}) {
    engines_.clear();
    members_.clear();
    transport_.reset();
    counters_.OnBytes(-counters_.totals().bytes);
    StartEngines(6);
    for (const int i : {1, 3, 5}) members_[static_cast<size_t>(i)].site = "far";
    engines_[static_cast<size_t>(dead)].reset();
    EXPECT_EQ(Publish(1), 5) << dead;
    int64_t relayed = 0;
    for (int i = 0; i < 6; ++i) {
      if (i == dead) continue;
      EXPECT_TRUE(Holds(i, 1)) << "dead " << dead << ", engine " << i;
      if (i % 2 == 1) relayed += engine(i).counters().totals().bytes;
    }
    // Two engines of the site are alive: one has the version from the trainer, the other from it.
    // A connection to the dead one may take chunks before it fails.
    EXPECT_GE(counters_.totals().bytes, 2 * kBytes) << dead;
    EXPECT_LT(counters_.totals().bytes, 3 * kBytes) << dead;
    EXPECT_GE(relayed, kBytes) << dead;
    EXPECT_LT(relayed, 2 * kBytes) << dead;
  }
}

TEST_F(WeightRelayTest, ASiteThatHangsDoesNotDelayAnother) {
  options_.timeout = kShortSilence;
  StartEngines(4);
  for (const int i : {0, 2}) {  // their chain is the first
    members_[static_cast<size_t>(i)].site = "far";
    Spoil(i, Error::kSwallow);
  }
  EXPECT_EQ(Publish(1), 2);
  EXPECT_TRUE(Holds(1, 1));
  EXPECT_TRUE(Holds(3, 1));
  EXPECT_EQ(counters_.totals().failures.at("timeout"), 2);
}

TEST_F(WeightRelayTest, ADeadMemberIsSkippedWhereverItStands) {
  for (int dead = 0; dead < 3; ++dead) {
    engines_.clear();
    members_.clear();
    transport_.reset();
    StartEngines(3);
    engines_[static_cast<size_t>(dead)].reset();
    EXPECT_EQ(Publish(1), 2) << dead;
    for (int i = 0; i < 3; ++i) {
      if (i == dead) continue;
      EXPECT_TRUE(Holds(i, 1)) << "dead " << dead << ", engine " << i;
    }
    EXPECT_NE(ErrorOf(StrCat("engine-", dead)), "");
  }
  EXPECT_EQ(counters_.totals().failures.at("unavailable"), 3);
}

TEST_F(WeightRelayTest, AMemberThatNeverAnswersIsSkippedAfterItsSilence) {
  options_.silence_timeout = kShortSilence;
  StartEngines(3);
  const MutePort mute;
  members_[1].address = mute.address();
  EXPECT_EQ(Publish(1), 2);
  EXPECT_TRUE(Holds(0, 1));
  EXPECT_TRUE(Holds(2, 1));
  EXPECT_NE(ErrorOf("engine-1").find("no sign of life"), std::string::npos) << ErrorOf("engine-1");
  EXPECT_EQ(counters_.totals().failures.at("timeout"), 1);
}

TEST_F(WeightRelayTest, AMemberThatTakesBytesAndStaysSilentIsSkipped) {
  options_.silence_timeout = kShortSilence;
  StartEngines(4);
  Spoil(0, Error::kSwallow);
  Spoil(2, Error::kSwallow);
  EXPECT_EQ(Publish(1), 2);
  EXPECT_TRUE(Holds(1, 1));
  EXPECT_TRUE(Holds(3, 1));
}

TEST_F(WeightRelayTest, AMemberThatHungIsNotWaitedForAgain) {
  options_.silence_timeout = kShortSilence;
  StartEngines(2);
  const PrepareProxy& hung = Spoil(0, Error::kSwallow);
  for (int64_t v = 1; v <= 4; ++v) EXPECT_EQ(Publish(v), 1);
  EXPECT_TRUE(Holds(1, 4));
  EXPECT_EQ(hung.calls(), 1);
}

TEST_F(WeightRelayTest, AMemberThatRefusesIsSkippedAndAskedAgainNextTime) {
  StartEngines(3);
  const VersionForTest newer = MakeVersion({0, 1}, 9, 100, 64);
  ASSERT_TRUE(engine(1).subscriber().Prepare(newer.manifest, newer.bytes).ok());
  ASSERT_TRUE(engine(1).subscriber().Activate(newer.receipt).ok());
  EXPECT_EQ(Publish(1), 2);
  EXPECT_TRUE(Holds(0, 1));
  EXPECT_TRUE(Holds(2, 1));
  EXPECT_NE(ErrorOf("engine-1").find("fenced by epoch 9"), std::string::npos);
  EXPECT_EQ(Publish(2), 2);
  EXPECT_EQ(counters_.totals().failures.at("refused"), 2);
}

TEST_F(WeightRelayTest, AMemberThatRefusesAVersionIsOfferedItAgain) {
  options_.first_retry = options_.last_retry = absl::Milliseconds(20);
  engines_.push_back(std::make_unique<TestMember>("engine-0", WeightEndpoint{}, kHost));
  members_.push_back(engines_[0]->member());
  EXPECT_EQ(Publish(1), 0);
  EXPECT_EQ(counters_.totals().failures.at("refused"), 1);
  Notification activated;
  engines_.clear();
  engines_.push_back(std::make_unique<TestMember>(
      "engine-0",
      WeightEndpoint{std::make_shared<WeightSubscriber>([&] { activated.Notify(); }), {}, {}},
      kHost, members_[0].address));
  ASSERT_TRUE(activated.WaitFor(absl::Seconds(30)));
  EXPECT_TRUE(Holds(0, 1));
  transport_.reset();
}

TEST_F(WeightRelayTest, AWorkerThatBeginsAnewHoldsNothing) {
  options_.first_retry = absl::Milliseconds(20);
  StartEngines(1);
  members_[0].work = "first";
  EXPECT_EQ(Publish(1), 1);
  EXPECT_TRUE(Holds(0, 1));
  Notification activated;
  const std::string address = members_[0].address;
  engines_.clear();
  engines_.push_back(std::make_unique<TestMember>(
      "engine-0",
      WeightEndpoint{std::make_shared<WeightSubscriber>([&] { activated.Notify(); }), {}, {}},
      kHost, address));
  members_[0].work = "second";
  Transport().SetMembers(2, members_);
  ASSERT_TRUE(activated.WaitFor(absl::Seconds(30)));
  EXPECT_TRUE(Holds(0, 1));
  transport_.reset();
}

TEST_F(WeightRelayTest, AMemberThatHasReplacedACallIsServedOnceMore) {
  StartEngines(2);
  Spoil(0, Error::kReplace, 1);
  Spoil(1, Error::kReplace, 2);
  EXPECT_EQ(Publish(1), 1);
  EXPECT_TRUE(Holds(0, 1));
  EXPECT_NE(ErrorOf("engine-1").find("replaced"), std::string::npos) << ErrorOf("engine-1");
  transport_.reset();
}

TEST_F(WeightRelayTest, AChunkSpoiledOnTheWayReachesNobody) {
  StartEngines(4);
  Spoil(1, Error::kFlipBit, 3);
  EXPECT_EQ(Publish(1), 3);
  EXPECT_TRUE(Holds(0, 1));
  EXPECT_FALSE(engine(1).subscriber().Committed().has_value());
  EXPECT_TRUE(Holds(2, 1));
  EXPECT_TRUE(Holds(3, 1));
  EXPECT_NE(ErrorOf("engine-1").find("differs from the manifest"), std::string::npos)
      << ErrorOf("engine-1");
  EXPECT_EQ(counters_.totals().failures.at("corrupt"), 1);
}

TEST_F(WeightRelayTest, ATornStreamReachesOnlyThoseAroundIt) {
  // Until engine 1 notices the broken stream, it may take over streams served by others. Those
  // engines miss the publication and get the version in the background.
  options_.first_retry = options_.last_retry = absl::Milliseconds(20);
  StartEngines(4);
  Spoil(1, Error::kTear, 3);
  Publish(1);
  EXPECT_TRUE(Holds(0, 1));
  for (int i = 2; i < 4; ++i) {
    const absl::Time guard = absl::Now() + absl::Seconds(30);
    while (!Holds(i, 1) && absl::Now() < guard) std::this_thread::yield();
    EXPECT_TRUE(Holds(i, 1)) << ErrorOf(StrCat("engine-", i));
  }
  EXPECT_FALSE(engine(1).subscriber().Committed().has_value());
  transport_.reset();
}

TEST_F(WeightRelayTest, AStreamWithoutItsHeaderIsRefused) {
  StartEngines(2);
  Spoil(0, Error::kNoHeader);
  EXPECT_EQ(Publish(1), 1);
  EXPECT_FALSE(engine(0).subscriber().Committed().has_value());
  EXPECT_TRUE(Holds(1, 1));
}

TEST_F(WeightRelayTest, WhenAllAreSilentItEndsWithTheTimeOfThePublication) {
  options_.timeout = absl::Milliseconds(500);
  StartEngines(3);
  for (int i = 0; i < 3; ++i) Spoil(i, Error::kSwallow);
  EXPECT_EQ(Publish(1), 0);
  EXPECT_EQ(counters_.totals().failures.at("timeout"), 3);
}

TEST_F(WeightRelayTest, AMemberThatLeavesIsNotWaitedForAnyMore) {
  options_.silence_timeout = absl::Hours(1);
  options_.timeout = absl::Hours(1);
  for (const ClusterRoute route : {ClusterRoute::kRelay, ClusterRoute::kShm}) {
    transport_.reset();
    engines_.clear();
    members_.clear();
    options_.route = route;
    options_.timeout = absl::Minutes(20);
    StartEngines(2);
    const MutePort mute;
    members_[0].address = mute.address();
    ClusterTransport& transport = Transport();
    std::jthread controller([&] {
      // Runs after engine 1 has the version, or while the trainer waits for engine 0.
      std::this_thread::yield();
      transport.SetMembers(2, {members_[1]});
    });
    EXPECT_EQ(Publish(1), 1);
    EXPECT_TRUE(Holds(1, 1));
  }
}

TEST_F(WeightRelayTest, AMemberThatComesBackGetsTheCommittedVersionInTheBackground) {
  options_.first_retry = absl::Milliseconds(20);
  for (const ClusterRoute route : {ClusterRoute::kRelay, ClusterRoute::kShm}) {
    transport_.reset();
    engines_.clear();
    members_.clear();
    options_.route = route;
    StartEngines(2);
    const std::string address = members_[0].address;
    engines_[0].reset();
    EXPECT_EQ(Publish(1), 1);
    Notification activated;
    engines_[0] = std::make_unique<TestMember>(
        "engine-0",
        WeightEndpoint{std::make_shared<WeightSubscriber>([&] { activated.Notify(); }), {}, {}},
        kHost, address);
    ASSERT_TRUE(activated.WaitFor(absl::Seconds(30)));
    EXPECT_TRUE(Holds(0, 1));
    transport_.reset();
  }
}

TEST_F(WeightRelayTest, AMemberThatJoinsGetsTheCommittedVersionAtOnce) {
  StartEngines(1);
  EXPECT_EQ(Publish(1), 1);
  Notification activated;
  engines_.push_back(std::make_unique<TestMember>(
      "joiner",
      WeightEndpoint{std::make_shared<WeightSubscriber>([&] { activated.Notify(); }), {}, {}}));
  members_.push_back(engines_.back()->member());
  Transport().SetMembers(2, members_);
  ASSERT_TRUE(activated.WaitFor(absl::Seconds(30)));
  EXPECT_TRUE(Holds(1, 1));
  EXPECT_EQ(Publish(2), 2);
  transport_.reset();
}

TEST_F(WeightRelayTest, AnOlderRevisionOfTheMembershipIsIgnored) {
  StartEngines(2);
  Transport().SetMembers(1, {});
  Transport().SetMembers(0, {});
  EXPECT_EQ(Publish(1), 2);
}

TEST_F(WeightRelayTest, EnginesThatShareNoMemoryFormAChain) {
  options_.route = ClusterRoute::kAuto;
  StartEngines(1);
  for (int i = 1; i < 3; ++i) {
    engines_.push_back(MakeEngine(StrCat("engine-", i), "another-host"));
    members_.push_back(engines_.back()->member());
  }
  EXPECT_EQ(Publish(1), 3);
  EXPECT_EQ(Publish(2), 3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Holds(i, 2)) << i;
  EXPECT_EQ(counters_.totals().bytes, 2 * kBytes);
  EXPECT_EQ(engine(1).counters().totals().bytes, 2 * kBytes);
}

TEST_F(WeightRelayTest, SharedMemoryAloneLeavesOutWhoCannotReachIt) {
  options_.route = ClusterRoute::kShm;
  StartEngines(1);
  engines_.push_back(MakeEngine("engine-1", "another-host"));
  members_.push_back(engines_.back()->member());
  EXPECT_EQ(Publish(1), 1);
  EXPECT_EQ(counters_.totals().bytes, 0);
}

TEST_F(WeightRelayTest, PhasesAreTimed) {
  StartEngines(2);
  EXPECT_EQ(Publish(1), 2);
  EXPECT_EQ(Publish(2), 2);
  const auto trainer = counters_.totals();
  EXPECT_EQ(trainer.count[static_cast<size_t>(WeightPhase::kTransfer)], 2);
  EXPECT_EQ(trainer.count[static_cast<size_t>(WeightPhase::kActivate)], 2);
  const auto engine_totals = engine(1).counters().totals();
  EXPECT_EQ(engine_totals.count[static_cast<size_t>(WeightPhase::kVerify)], 2);
  EXPECT_GT(engine_totals.seconds[static_cast<size_t>(WeightPhase::kVerify)], 0);
}

TEST_F(WeightRelayTest, TheTimeOfEveryMemberIsTold) {
  options_.route = ClusterRoute::kAuto;
  StartEngines(2);
  for (int i = 2; i < 5; ++i) {
    engines_.push_back(MakeEngine(StrCat("engine-", i), "another-host"));
    members_.push_back(engines_.back()->member());
  }
  engines_.back().reset();  // a failed member reports no time
  EXPECT_EQ(Publish(1), 4);
  EXPECT_EQ(Publish(2), 4);
  auto members = counters_.totals().members;
  EXPECT_EQ(members.size(), 2U);
  EXPECT_EQ(members["shm"].publications, 2);
  EXPECT_EQ(members["shm"].members, 4);
  EXPECT_EQ(members["grpc_relay"].publications, 2);
  EXPECT_EQ(members["grpc_relay"].members, 4);
  EXPECT_GT(members["grpc_relay"].slowest_seconds, 0);
}

// Supports shared memory, but is slow.
class SlowMember final : public weights::v1::WeightService::Service {
 public:
  grpc::Status PrepareShared(grpc::ServerContext*, const weights::v1::PrepareSharedRequest*,
                             weights::v1::PrepareReply*) override {
    absl::SleepFor(kTakes);
    return grpc::Status::OK;
  }
  grpc::Status Activate(grpc::ServerContext*, const weights::v1::ActivateRequest*,
                        weights::v1::ActivateReply*) override {
    return grpc::Status::OK;
  }
  static constexpr absl::Duration kTakes = absl::Milliseconds(300);
};

TEST_F(WeightRelayTest, ASlowMemberIsTheSlowestOfEveryPublication) {
  options_.route = ClusterRoute::kShm;
  StartEngines(3);
  SlowMember slow;
  LoopbackServer server(&slow);
  members_.push_back({"slow", server.address()});
  EXPECT_EQ(Publish(1), 4);
  EXPECT_EQ(Publish(2), 4);
  const auto shared = counters_.totals().members["shm"];
  EXPECT_EQ(shared.members, 8);
  EXPECT_GE(shared.slowest_seconds, 2 * absl::ToDoubleSeconds(SlowMember::kTakes));
  transport_.reset();
}

TEST(ClusterRoute, IsWhatTheJobSays) {
  EXPECT_EQ(*ParseClusterRoute("auto"), ClusterRoute::kAuto);
  EXPECT_EQ(*ParseClusterRoute("shm"), ClusterRoute::kShm);
  EXPECT_EQ(*ParseClusterRoute("cuda_ipc"), ClusterRoute::kCudaIpc);
  EXPECT_EQ(*ParseClusterRoute("grpc_relay"), ClusterRoute::kRelay);
  EXPECT_EQ(*ParseClusterRoute("nccl"), ClusterRoute::kNccl);
  EXPECT_EQ(*ParseClusterRoute("gloo"), ClusterRoute::kGloo);
  for (const char* other : {"", "inprocess", "disk", "SHM"}) {
    EXPECT_EQ(ParseClusterRoute(other).status().code(), absl::StatusCode::kInvalidArgument)
        << other;
  }
}

}  // namespace
}  // namespace freshet
