// Members in separate processes: this binary, rerun for a single disabled test.
#include <signal.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"
#include "tests/weights/grpc/child_member.h"
#include "tests/weights/grpc/weight_plane_fixture.h"
#include "weights/grpc/cluster_transport.h"
#include "weights/grpc/manifest_codec.h"
#include "weights/grpc/weight_puller.h"

namespace freshet {
namespace {

constexpr char kAddress[] = "FRESHET_TEST_ADDRESS";
// Timeout of a stopped member. Working members answer faster, even on a busy machine.
constexpr absl::Duration kSilence = absl::Seconds(2);

VersionForTest Version(int64_t number, int64_t epoch) {
  return MakeVersion({0, number}, epoch, (3 << 20) + 1, 64 << 10);
}

ClusterTransportOptions Options(ClusterRoute route) {
  return {.job = kJob,
          .route = route,
          .host = kHost,
          .silence_timeout = kSilence,
          .first_retry = absl::Milliseconds(20),
          .last_retry = absl::Milliseconds(100)};
}

// Child: an engine that lives until it is killed.
TEST(WeightProcess, DISABLED_Engine) {
  const auto engine = MakeEngine("child");
  Child::TellAndWait(engine->member().address);
}

// Child: a trainer in the middle of a Prepare.
TEST(WeightProcess, DISABLED_TrainerInTheMiddle) {
  const VersionForTest version = Version(1, 1);
  const auto stub = weights::v1::WeightService::NewStub(TestChannel(std::getenv(kAddress)));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(5));
  const auto stream = stub->Prepare(&context);
  weights::v1::PrepareRequest request;
  request.mutable_header()->set_job(kJob);
  ManifestToProto(version.manifest, *request.mutable_header()->mutable_manifest());
  ASSERT_TRUE(stream->Write(request));
  weights::v1::PrepareReply accepted;
  ASSERT_TRUE(stream->Read(&accepted));
  request.mutable_chunk()->set_data(version.bytes->data(), 1 << 20);
  ASSERT_TRUE(stream->Write(request));
  Child::TellAndWait("half");
}

// Child: a trainer that has published a version through shared memory.
TEST(WeightProcess, DISABLED_TrainerThatShared) {
  ClusterTransport transport(Options(ClusterRoute::kShm), TestChannel, SystemClock::Get(), nullptr);
  transport.SetMembers(1, {{"engine", std::getenv(kAddress)}});
  const int64_t holders = transport.Publish(Version(1, 1).Committed());
  Child::TellAndWait(StrCat(holders));
}

TEST(WeightProcess, ATrainerKilledInTheMiddleOfAVersionLeavesNothing) {
  const auto engine = MakeEngine("engine");
  ::setenv(kAddress, engine->member().address.c_str(), 1);
  Child trainer("WeightProcess.DISABLED_TrainerInTheMiddle");
  ASSERT_EQ(trainer.line(), "half");
  trainer.Kill();
  EXPECT_FALSE(engine->subscriber().Activate(Version(1, 1).receipt).ok());
  // The next trainer publishes the same version and continues.
  for (const ClusterRoute route : {ClusterRoute::kRelay, ClusterRoute::kShm}) {
    ClusterTransport transport(Options(route), TestChannel, SystemClock::Get(), nullptr);
    transport.SetMembers(1, {engine->member()});
    const int64_t number = route == ClusterRoute::kRelay ? 1 : 2;
    EXPECT_EQ(transport.Publish(Version(number, 2).Committed()), 1);
    EXPECT_EQ(*engine->subscriber().Take()->bytes, *Version(number, 2).bytes);
  }
}

TEST(WeightProcess, AnEngineKeepsWhatAKilledTrainerShared) {
  const auto engine = MakeEngine("engine");
  ::setenv(kAddress, engine->member().address.c_str(), 1);
  Child trainer("WeightProcess.DISABLED_TrainerThatShared");
  ASSERT_EQ(trainer.line(), "1");
  const auto taken = engine->subscriber().Take();
  ASSERT_TRUE(taken.has_value());
  trainer.Kill();
  EXPECT_TRUE(VerifyBuckets(taken->manifest, *taken->bytes).ok());
  EXPECT_EQ(*taken->bytes, *Version(1, 1).bytes);
}

TEST(WeightProcess, AStoppedEngineHoldsUpNobodyAndCatchesUp) {
  for (const ClusterRoute route : {ClusterRoute::kRelay, ClusterRoute::kShm}) {
    Child stopped("WeightProcess.DISABLED_Engine");
    const auto engine = MakeEngine("engine");
    ClusterTransport transport(Options(route), TestChannel, SystemClock::Get(), nullptr);
    transport.SetMembers(1, {{"a-child", stopped.line()}, engine->member()});
    EXPECT_EQ(transport.Publish(Version(1, 1).Committed()), 2);
    stopped.Signal(SIGSTOP);
    EXPECT_EQ(transport.Publish(Version(2, 1).Committed()), 1);
    EXPECT_EQ(transport.Publish(Version(3, 1).Committed()), 1);
    EXPECT_EQ(*engine->subscriber().Take()->bytes, *Version(3, 1).bytes);
    stopped.Signal(SIGCONT);
    Mutex mu;
    CondVar pause;
    const auto reader = std::make_shared<WeightSubscriber>();
    PullOptions options;
    options.job = kJob;
    options.at_least = {0, 3};
    const auto holds = [&] {
      return PullWeights(options, {{"a-child", stopped.line()}}, TestChannel, reader,
                         SystemClock::Get(), nullptr)
          .ok();
    };
    bool caught_up = holds();
    for (int i = 0; i < 3000 && !caught_up; ++i) {
      MutexLock lock(mu);
      pause.WaitFor(mu, absl::Milliseconds(10));
      caught_up = holds();
    }
    EXPECT_TRUE(caught_up);
    // The transport notes it a moment after the engine holds the version.
    int64_t number = 4;
    while (number < 100 && transport.Publish(Version(number, 1).Committed()) != 2) ++number;
    EXPECT_LT(number, 100);
  }
}

TEST(WeightProcess, AChainSurvivesTheDeathOfAnyOfItsEngines) {
  for (size_t dead = 0; dead < 3; ++dead) {
    std::vector<std::unique_ptr<Child>> engines;
    std::vector<WeightMember> members;
    for (int i = 0; i < 3; ++i) {
      engines.push_back(std::make_unique<Child>("WeightProcess.DISABLED_Engine"));
      members.push_back({StrCat("engine-", i), engines.back()->line()});
    }
    ClusterTransport transport(Options(ClusterRoute::kRelay), TestChannel, SystemClock::Get(),
                               nullptr);
    transport.SetMembers(1, members);
    EXPECT_EQ(transport.Publish(Version(1, 1).Committed()), 3);
    engines[dead]->Kill();
    EXPECT_EQ(transport.Publish(Version(2, 1).Committed()), 2) << dead;
  }
}

}  // namespace
}  // namespace freshet
