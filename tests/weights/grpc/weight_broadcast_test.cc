// Broadcasts between engines in this process, over the fake NCCL and over Gloo, and with engines in
// processes that die or hang in the middle: this binary, rerun for a disabled test.
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/gloo_backend.h"
#include "collective/nccl_backend.h"
#include "collective/open_backend.h"
#include "gmock/gmock.h"
#include "tests/contract/weight_transport_contract.h"
#include "tests/weights/grpc/child_member.h"
#include "tests/weights/grpc/cluster_for_test.h"
#include "weights/grpc/cluster_transport.h"

namespace freshet {
namespace {

constexpr int64_t kBucket = 64 << 10;
constexpr int64_t kPieces = 8;
constexpr int64_t kBytes = kPieces * kBucket - 1;

// Each member has a GPU of its own: the fake one waits for its operations when memory is freed.
absl::StatusOr<std::shared_ptr<CommunicatorBackend>> Open(const std::string& name) {
  static std::atomic<int> devices = 0;
  if (name == "nccl") return OpenNcclBackend({FRESHET_FAKE_NCCL, FRESHET_FAKE_NCCL}, devices++);
  return OpenBackend(name);
}

// A communicator that calls `before` with the number of each broadcast, from 1.
class WatchedCommunicator final : public Communicator {
 public:
  WatchedCommunicator(std::unique_ptr<Communicator> inner, std::function<void(int)> before)
      : inner_(std::move(inner)), before_(std::move(before)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  absl::Status Broadcast(std::span<std::byte> data, int root, absl::Duration timeout) override {
    before_(++broadcasts_);
    return inner_->Broadcast(data, root, timeout);
  }
  absl::Status AllReduce(std::span<float> data, absl::Duration timeout) override {
    return inner_->AllReduce(data, timeout);
  }
  absl::Status ReduceScatter(std::span<const float> data, std::span<float> own,
                             absl::Duration timeout) override {
    return inner_->ReduceScatter(data, own, timeout);
  }
  absl::Status AllGather(std::span<const std::byte> own, std::span<std::byte> all,
                         absl::Duration timeout) override {
    return inner_->AllGather(own, all, timeout);
  }
  absl::Status Gather(std::span<const std::byte> own, std::span<std::byte> all,
                      absl::Duration timeout) override {
    return inner_->Gather(own, all, timeout);
  }
  absl::Status Barrier(absl::Duration timeout) override { return inner_->Barrier(timeout); }
  void Abort(const std::string& reason) override { inner_->Abort(reason); }
  absl::Status error() override { return inner_->error(); }

 private:
  const std::unique_ptr<Communicator> inner_;
  const std::function<void(int)> before_;
  int broadcasts_ = 0;
};

// Gloo that counts its groups.
class WatchedBackend final : public CommunicatorBackend {
 public:
  explicit WatchedBackend(std::function<void(int)> before = [](int) {})
      : before_(std::move(before)) {}
  absl::StatusOr<std::string> NewRendezvous() override {
    ++groups;
    return inner_->NewRendezvous();
  }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const GroupPlace& place) override {
    auto connected = inner_->Connect(place);
    if (!connected.ok()) return connected.status();
    return std::make_unique<WatchedCommunicator>(*std::move(connected), before_);
  }
  std::atomic<int> groups = 0;

 private:
  const std::shared_ptr<CommunicatorBackend> inner_ = MakeGlooBackend();
  const std::function<void(int)> before_;
};

OpenCommunicatorBackend Always(std::shared_ptr<CommunicatorBackend> backend) {
  return [backend = std::move(backend)](const std::string&) { return backend; };
}

std::unique_ptr<TestMember> Engine(const std::string& worker,
                                   std::shared_ptr<WeightSubscriber> subscriber,
                                   OpenCommunicatorBackend open,
                                   const std::string& backend = "gloo") {
  return std::make_unique<TestMember>(worker,
                                      WeightEndpoint{std::move(subscriber), {}, {}, backend}, kHost,
                                      "127.0.0.1:0", TestChannel, std::move(open));
}

std::unique_ptr<TestMember> GlooEngine(const std::string& worker) {
  return Engine(worker, std::make_shared<WeightSubscriber>(), OpenBackend);
}

ClusterTransportOptions Options(std::shared_ptr<CommunicatorBackend> backend) {
  return {.job = kJob,
          .route = ClusterRoute::kGloo,
          .host = kHost,
          .backend = std::move(backend),
          .piece_bytes = kBucket,
          .timeout = absl::Minutes(2),
          .first_retry = absl::Milliseconds(20),
          .last_retry = absl::Milliseconds(100)};
}

WeightTransportBackend Backend(const char* name, ClusterRoute route) {
  return {name, [name, route](std::vector<std::shared_ptr<WeightSubscriber>> engines) {
            return std::make_unique<ClusterForTest>(
                ClusterTransportOptions{.job = kJob,
                                        .route = route,
                                        .host = kHost,
                                        .backend = *Open(name),
                                        .timeout = absl::Minutes(2)},
                std::move(engines), [name](const std::string& worker, auto subscriber) {
                  return Engine(worker, std::move(subscriber), Open, name);
                });
          }};
}

INSTANTIATE_TEST_SUITE_P(Broadcast, WeightTransportContract,
                         testing::Values(Backend("nccl", ClusterRoute::kNccl),
                                         Backend("gloo", ClusterRoute::kGloo)),
                         [](const auto& tested) { return tested.param.name; });

// Shards of a version of kBytes: this process has the first quarter and the last, and another
// sender, which is a thread of the test, the rest.
class ThreadShards final : public WeightShards {
 public:
  // The other sender, which may send the shards of many versions.
  struct Sender {
    RangeSender sender{SystemClock::Get()};
    std::shared_ptr<WatchedBackend> backend = std::make_shared<WatchedBackend>();
    std::function<absl::Status()> before = [] { return absl::OkStatus(); };
    std::byte damage{0};  // changes the first byte that it sends
    int sent = 0;
    std::jthread thread;
  };

  ThreadShards(WeightBytes bytes, Sender& other) : bytes_(std::move(bytes)), other_(other) {}
  const std::vector<std::vector<ByteRange>>& ranges() const override { return ranges_; }
  const void* senders() const override { return &other_; }
  void Send(size_t sender, const std::string& backend, const SendOrder& order,
            absl::Duration timeout, std::function<void(const absl::Status&)> done) override {
    EXPECT_EQ(sender, 1U);
    EXPECT_EQ(backend, "gloo");
    if (other_.thread.joinable()) other_.thread.join();
    other_.thread = std::jthread([order, timeout, done, bytes = bytes_, &other = other_] {
      std::vector<std::byte> shard(bytes->data() + kFirst, bytes->data() + kLast);
      shard[0] ^= other.damage;
      const SendParts parts = {shard};
      absl::Status sent = other.before();
      if (sent.ok()) {
        sent = other.sender.Send(*other.backend, order, parts, SystemClock::Get().Now() + timeout,
                                 [&](int64_t) { ++other.sent; });
      }
      done(sent);
    });
  }
  void Abort(size_t, const std::string& group, const std::string& reason) override {
    other_.sender.Abort(group, reason);
  }

 private:
  static constexpr int64_t kFirst = kBytes / 4;
  static constexpr int64_t kLast = 3 * kBytes / 4;
  const std::vector<std::vector<ByteRange>> ranges_ = {{{0, kFirst}, {kLast, kBytes - kLast}},
                                                       {{kFirst, kLast - kFirst}}};
  const WeightBytes bytes_;
  Sender& other_;
};

class WeightBroadcastTest : public testing::Test {
 protected:
  // Publishes the next version; returns the number of engines that hold it.
  int64_t Publish(ClusterTransport& transport, ThreadShards::Sender* other = nullptr) {
    version_ = MakeVersion({0, ++number_}, 1, kBytes, kBucket);
    CommittedWeights committed = version_.Committed();
    if (other != nullptr) {
      committed.shards = std::make_shared<ThreadShards>(committed.snapshot.bytes, *other);
    }
    return transport.Publish(committed);
  }
  // The bytes of the last version, as received from one engine.
  void ExpectHolds(TestMember& engine) {
    const auto taken = engine.subscriber().Take();
    ASSERT_TRUE(taken.has_value());
    EXPECT_EQ(*taken->bytes, *version_.bytes);
  }

  VersionForTest version_;
  int64_t number_ = 0;
};

TEST_F(WeightBroadcastTest, EnginesOfAnotherSiteGetVersionsByTheRelay) {
  const auto near = GlooEngine("near");
  const auto far = GlooEngine("far");
  const auto backend = std::make_shared<WatchedBackend>();
  WeightSyncCounters counters;
  ClusterTransportOptions options = Options(backend);
  options.site = "here";
  ClusterTransport transport(options, TestChannel, SystemClock::Get(), &counters);
  WeightMember near_member = near->member();
  near_member.site = "here";
  transport.SetMembers(1, {near_member, far->member()});
  EXPECT_EQ(Publish(transport), 2);
  EXPECT_EQ(Publish(transport), 2);
  ExpectHolds(*near);
  ExpectHolds(*far);
  EXPECT_EQ(backend->groups, 1);
  EXPECT_EQ(counters.totals().members["gloo"].members, 2);
  EXPECT_EQ(counters.totals().members["grpc_relay"].members, 2);
}

TEST_F(WeightBroadcastTest, TheGroupLastsUntilItsMembersChange) {
  const auto a = GlooEngine("a");
  const auto b = GlooEngine("b");
  const auto backend = std::make_shared<WatchedBackend>();
  WeightSyncCounters counters;
  ClusterTransport transport(Options(backend), TestChannel, SystemClock::Get(), &counters);
  transport.SetMembers(1, {a->member()});
  EXPECT_EQ(Publish(transport), 1);
  EXPECT_EQ(Publish(transport), 1);
  EXPECT_EQ(backend->groups, 1);
  EXPECT_EQ(counters.totals().bytes, 2 * kBytes);
  transport.SetMembers(2, {a->member(), b->member()});
  EXPECT_EQ(Publish(transport), 2);
  EXPECT_EQ(Publish(transport), 2);
  ExpectHolds(*a);
  ExpectHolds(*b);
  transport.SetMembers(3, {b->member()});
  EXPECT_EQ(Publish(transport), 1);
  ExpectHolds(*b);
  EXPECT_EQ(backend->groups, 3);
  EXPECT_EQ(counters.totals().members["gloo"].members, 7);
  EXPECT_EQ(counters.totals().members.count("grpc_relay"), 0U);
}

TEST_F(WeightBroadcastTest, EverySenderBroadcastsItsShardUntilTheSendersChange) {
  const auto a = GlooEngine("a");
  const auto b = GlooEngine("b");
  const auto backend = std::make_shared<WatchedBackend>();
  WeightSyncCounters counters;
  ClusterTransportOptions options = Options(backend);
  ThreadShards::Sender first;
  ThreadShards::Sender second;
  {
    ClusterTransport transport(options, TestChannel, SystemClock::Get(), &counters);
    transport.SetMembers(1, {a->member(), b->member()});
    for (int version = 1; version <= 3; ++version) {
      EXPECT_EQ(Publish(transport, &first), 2);
      ExpectHolds(*a);
      ExpectHolds(*b);
    }
    EXPECT_EQ(backend->groups, 2);
    EXPECT_EQ(Publish(transport, &second), 2);
    ExpectHolds(*a);
    EXPECT_EQ(backend->groups, 4);
    EXPECT_EQ(Publish(transport), 2);  // by the trainer alone
    ExpectHolds(*b);
    EXPECT_EQ(backend->groups, 5);
  }
  first.thread.join();
  second.thread.join();
  const int pieces = (kBytes / 2 + kBucket - 1) / kBucket;
  EXPECT_EQ(first.sent, 3 * pieces);
  EXPECT_EQ(second.sent, pieces);
  EXPECT_EQ(counters.totals().bytes, 4 * (kBytes / 2) + kBytes);
  EXPECT_EQ(counters.totals().failures["group"], 0);
  EXPECT_EQ(counters.totals().members["gloo"].members, 10);
}

TEST_F(WeightBroadcastTest, IfASenderFailsTheTrainerAloneSendsTheVersionAndTheNextOnes) {
  const auto engine = GlooEngine("engine");
  const auto backend = std::make_shared<WatchedBackend>();
  WeightSyncCounters counters;
  ClusterTransportOptions options = Options(backend);
  options.last_retry = absl::Hours(1);  // until shards are sent again
  ThreadShards::Sender other;
  other.before = [] { return absl::UnavailableError("this rank is gone"); };
  ClusterTransport transport(options, TestChannel, SystemClock::Get(), &counters);
  transport.SetMembers(1, {engine->member()});
  for (int version = 1; version <= 3; ++version) {
    EXPECT_EQ(Publish(transport, &other), 1);
    ExpectHolds(*engine);
  }
  EXPECT_EQ(backend->groups, 3);  // two with shards, then one
  EXPECT_EQ(counters.totals().failures["group"], 1);
  EXPECT_EQ(counters.totals().members["gloo"].members, 3);
}

TEST_F(WeightBroadcastTest, IfASenderHasOtherBytesTheTrainerAloneSendsTheVersion) {
  const auto engine = GlooEngine("engine");
  WeightSyncCounters counters;
  ClusterTransportOptions options = Options(MakeGlooBackend());
  options.last_retry = absl::Hours(1);  // until the engine is tried again, and shards
  ThreadShards::Sender other;
  other.damage = std::byte{1};
  ClusterTransport transport(options, TestChannel, SystemClock::Get(), &counters);
  transport.SetMembers(1, {engine->member()});
  EXPECT_EQ(Publish(transport, &other), 1);
  ExpectHolds(*engine);
  EXPECT_EQ(counters.totals().failures["group"], 1);
  EXPECT_EQ(counters.totals().members["gloo"].members, 1);
}

TEST_F(WeightBroadcastTest, AnEngineWithoutTheBackendGetsTheRelay) {
  const auto able = GlooEngine("able");
  std::atomic<int> asked = 0;
  const auto unable =
      Engine("unable", std::make_shared<WeightSubscriber>(),
             [&](const std::string& name) -> absl::StatusOr<std::shared_ptr<CommunicatorBackend>> {
               ++asked;
               return absl::UnimplementedError("no " + name + " here");
             });
  WeightSyncCounters counters;
  ClusterTransport transport(Options(MakeGlooBackend()), TestChannel, SystemClock::Get(),
                             &counters);
  transport.SetMembers(1, {able->member(), unable->member()});
  EXPECT_EQ(Publish(transport), 2);
  EXPECT_EQ(Publish(transport), 2);
  ExpectHolds(*able);
  ExpectHolds(*unable);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(counters.totals().members["gloo"].members, 2);
  EXPECT_EQ(counters.totals().members["grpc_relay"].members, 2);
}

TEST_F(WeightBroadcastTest, AnEngineOfAJobWithAnotherTransportTakesPartInNone) {
  const auto engine = Engine("engine", std::make_shared<WeightSubscriber>(), Open, "nccl");
  WeightSyncCounters counters;
  ClusterTransport transport(Options(MakeGlooBackend()), TestChannel, SystemClock::Get(),
                             &counters);
  transport.SetMembers(1, {engine->member()});
  EXPECT_EQ(Publish(transport), 1);
  ExpectHolds(*engine);
  EXPECT_EQ(counters.totals().members["grpc_relay"].members, 1);
}

TEST_F(WeightBroadcastTest, GroupsThatFailAgainAndAgainLeaveTheRelay) {
  const auto engine = Engine("engine", std::make_shared<WeightSubscriber>(), Open, "nccl");
  class Broken final : public CommunicatorBackend {
    absl::StatusOr<std::string> NewRendezvous() override { return std::string(32, '0'); }
    absl::StatusOr<std::unique_ptr<Communicator>> Connect(const GroupPlace&) override {
      return absl::UnavailableError("no route");
    }
  };
  WeightSyncCounters counters;
  ClusterTransportOptions options = Options(std::make_shared<Broken>());
  options.route = ClusterRoute::kNccl;
  options.last_retry = absl::Hours(1);  // until the next broadcast
  ClusterTransport transport(options, TestChannel, SystemClock::Get(), &counters);
  transport.SetMembers(1, {engine->member()});
  EXPECT_EQ(Publish(transport), 1);
  ExpectHolds(*engine);
  const int64_t failed = counters.totals().failures["group"];
  EXPECT_GE(failed, 1);
  for (int64_t version = 2; version <= 3; ++version) {
    EXPECT_EQ(Publish(transport), 1);
    ExpectHolds(*engine);
    EXPECT_EQ(counters.totals().members["grpc_relay"].members, version);
    EXPECT_EQ(counters.totals().failures["group"], failed) << "broadcasts do not pause";
  }
}

TEST_F(WeightBroadcastTest, AnEngineThatCannotJoinIsLeftOut) {
  class Unable final : public CommunicatorBackend {
    absl::StatusOr<std::string> NewRendezvous() override { return std::string(); }
    absl::StatusOr<std::unique_ptr<Communicator>> Connect(const GroupPlace&) override {
      return absl::UnavailableError("no route");
    }
  };
  const auto able = Engine("able", std::make_shared<WeightSubscriber>(), Open, "nccl");
  const auto unable = Engine("unable", std::make_shared<WeightSubscriber>(),
                             Always(std::make_shared<Unable>()), "nccl");
  WeightSyncCounters counters;
  ClusterTransportOptions options = Options(*Open("nccl"));
  options.route = ClusterRoute::kNccl;
  options.last_retry = absl::Hours(1);  // until it is in a group again
  ClusterTransport transport(options, TestChannel, SystemClock::Get(), &counters);
  transport.SetMembers(1, {able->member(), unable->member()});
  for (int64_t version = 1; version <= 3; ++version) {
    EXPECT_EQ(Publish(transport), 2);
    ExpectHolds(*able);
    ExpectHolds(*unable);
    EXPECT_EQ(counters.totals().members["nccl"].members, version);
    EXPECT_EQ(counters.totals().members["grpc_relay"].members, version);
    EXPECT_EQ(counters.totals().failures["group"], 2);  // of the first version
  }
}

// Child: an engine that gets a signal before it takes piece 4 of its group's second version.
TEST(WeightBroadcastProcess, DISABLED_Engine) {
  const int fatal = std::atoi(std::getenv("FRESHET_TEST_SIGNAL"));
  const auto engine = Engine("child", std::make_shared<WeightSubscriber>(),
                             Always(std::make_shared<WatchedBackend>([fatal](int broadcast) {
                               if (broadcast == kPieces + 4) ::raise(fatal);
                             })));
  Child::TellAndWait(engine->member().address);
}

TEST_F(WeightBroadcastTest, TheOthersGoOnWhenAnEngineDiesInTheMiddle) {
  ::setenv("FRESHET_TEST_SIGNAL", std::to_string(SIGKILL).c_str(), 1);
  const Child dying("WeightBroadcastProcess.DISABLED_Engine");
  const auto a = GlooEngine("a");
  const auto b = GlooEngine("c");
  const auto backend = std::make_shared<WatchedBackend>();
  WeightSyncCounters counters;
  ClusterTransport transport(Options(backend), TestChannel, SystemClock::Get(), &counters);
  transport.SetMembers(1, {a->member(), {"b", dying.line()}, b->member()});
  EXPECT_EQ(Publish(transport), 3);
  EXPECT_EQ(Publish(transport), 2);
  ExpectHolds(*a);
  ExpectHolds(*b);
  EXPECT_EQ(backend->groups, 2);
  EXPECT_EQ(counters.totals().members["gloo"].members, 5);
  // What the first group had brought was not sent again.
  EXPECT_LT(counters.totals().bytes, 3 * kBytes);
}

TEST_F(WeightBroadcastTest, AnEngineThatHangsInTheMiddleIsLeftBehindAndCatchesUp) {
  ::setenv("FRESHET_TEST_SIGNAL", std::to_string(SIGSTOP).c_str(), 1);
  const Child hanging("WeightBroadcastProcess.DISABLED_Engine");
  const auto engine = GlooEngine("engine");
  ClusterTransportOptions options = Options(MakeGlooBackend());
  options.silence_timeout = absl::Seconds(2);
  WeightSyncCounters counters;
  ClusterTransport transport(options, TestChannel, SystemClock::Get(), &counters);
  transport.SetMembers(1, {engine->member(), {"hanging", hanging.line()}});
  EXPECT_EQ(Publish(transport), 2);
  EXPECT_EQ(Publish(transport), 1);
  ExpectHolds(*engine);
  EXPECT_EQ(Publish(transport), 1);  // without waiting for it
  hanging.Signal(SIGCONT);
  Notification never;
  int64_t holders = 0;
  for (int i = 0; i < 1000 && holders != 2; ++i) {
    never.WaitFor(absl::Milliseconds(10));
    holders = Publish(transport);
  }
  EXPECT_EQ(holders, 2);
}

}  // namespace
}  // namespace freshet
