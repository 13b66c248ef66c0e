#include "weights/broadcast_receiver.h"

#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"

namespace freshet {
namespace {

using Code = absl::StatusCode;

// Brings two pieces of a version, from the byte that the first one is for, and then fails.
class FailingCommunicator final : public Communicator {
 public:
  explicit FailingCommunicator(WeightBytes bytes) : bytes_(std::move(bytes)) {}
  int rank() const override { return 1; }
  int size() const override { return 2; }
  absl::Status Broadcast(std::span<std::byte> data, int /*root*/, absl::Duration) override {
    if (++pieces_ > 2) return absl::UnavailableError("the group has failed");
    for (size_t i = 0; i < data.size(); ++i) data[i] = bytes_->data()[at_++ % bytes_->size()];
    return absl::OkStatus();
  }
  absl::Status AllReduce(std::span<float>, absl::Duration) override { return absl::OkStatus(); }
  absl::Status ReduceScatter(std::span<const float>, std::span<float>, absl::Duration) override {
    return absl::OkStatus();
  }
  absl::Status AllGather(std::span<const std::byte>, std::span<std::byte>,
                         absl::Duration) override {
    return absl::OkStatus();
  }
  absl::Status Gather(std::span<const std::byte>, std::span<std::byte>, absl::Duration) override {
    return absl::OkStatus();
  }
  absl::Status Barrier(absl::Duration) override { return absl::OkStatus(); }
  void Abort(const std::string&) override {}
  absl::Status error() override { return absl::OkStatus(); }

 private:
  const WeightBytes bytes_;
  size_t at_ = 0;
  int pieces_ = 0;
};

// A backend whose groups never come together, or fail after two pieces of `brings`.
class LonelyBackend final : public CommunicatorBackend {
 public:
  absl::StatusOr<std::string> NewRendezvous() override { return "secret"; }
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const GroupPlace& place) override {
    if (brings != nullptr) return std::make_unique<FailingCommunicator>(brings);
    connecting.Notify();
    Notification stopped;
    const std::stop_callback stop(place.stop, [&] { stopped.Notify(); });
    if (stopped.WaitFor(place.timeout)) return absl::AbortedError("stopped");
    return absl::DeadlineExceededError("alone");
  }
  Notification connecting;
  WeightBytes brings;
};

class BroadcastReceiverTest : public testing::Test {
 protected:
  BroadcastReceiverTest() {
    order_.manifest = version_.manifest;
    order_.backend = "lonely";
    order_.groups = {{"group", 1, 2, "secret", {{0, 1000}}}};
    order_.piece_bytes = 128;
    order_.silence_timeout = absl::Minutes(2);
  }
  absl::Status Receive() {
    return receiver_.Receive(order_, SystemClock::Get().Now() + absl::Minutes(2)).status();
  }

  absl::StatusOr<BroadcastReceiver::Reply> Ask(const WeightManifest& manifest,
                                               const std::string& backend) {
    return receiver_.Ask(manifest, backend, SystemClock::Get().Now() + absl::Minutes(2));
  }

  const VersionForTest version_ = MakeVersion({0, 1}, 1, 1000, 64);
  BroadcastOrder order_;
  const std::shared_ptr<LonelyBackend> backend_ = std::make_shared<LonelyBackend>();
  const std::shared_ptr<WeightSubscriber> subscriber_ = std::make_shared<WeightSubscriber>();
  BroadcastReceiver receiver_{
      [this](const std::string& name) -> absl::StatusOr<std::shared_ptr<CommunicatorBackend>> {
        if (name == "lonely") return backend_;
        return absl::UnimplementedError("no backend " + name);
      },
      subscriber_, WeightLimits(), SystemClock::Get(), nullptr};
};

TEST_F(BroadcastReceiverTest, AnOrderThatDoesNotFitIsRefusedBeforeAnythingIsAllocated) {
  const BroadcastOrder good = order_;
  const std::function<void(BroadcastOrder&)> harms[] = {
      [](BroadcastOrder& o) { o.groups.clear(); },
      [](BroadcastOrder& o) { o.groups.resize(1000, o.groups[0]); },
      [](BroadcastOrder& o) {
        o.groups.push_back({"group", 1, 2, "secret", {}});
      },  // the same
      [](BroadcastOrder& o) { o.groups[0].rank = 0; },
      [](BroadcastOrder& o) { o.groups[0].rank = 2; },
      [](BroadcastOrder& o) { o.groups[0].rank = -1; },
      [](BroadcastOrder& o) { o.groups[0].size = 1; },
      [](BroadcastOrder& o) { o.groups[0].size = 1 << 30; },
      [](BroadcastOrder& o) { o.groups[0].id = ""; },
      [](BroadcastOrder& o) { o.groups[0].id = std::string(10'000, 'g'); },
      [](BroadcastOrder& o) { o.groups[0].rendezvous = std::string(10'000, 's'); },
      [](BroadcastOrder& o) { o.piece_bytes = 0; },
      [](BroadcastOrder& o) { o.piece_bytes = -64; },
      [](BroadcastOrder& o) { o.piece_bytes = 63; },
      [](BroadcastOrder& o) { o.piece_bytes = int64_t{64} << 30; },
      [](BroadcastOrder& o) {
        o.groups[0].ranges = {{-64, 1064}};
      },
      [](BroadcastOrder& o) {
        o.groups[0].ranges = {{std::numeric_limits<int64_t>::min(), 1}};
      },
      [](BroadcastOrder& o) {
        o.groups[0].ranges = {{32, 968}};
      },
      [](BroadcastOrder& o) {
        o.groups[0].ranges = {{1024, 64}};
      },
      [](BroadcastOrder& o) {
        o.groups[0].ranges = {{0, 999}};
      },
      [](BroadcastOrder& o) {
        o.groups[0].ranges = {{0, int64_t{1} << 62}};
      },
      [](BroadcastOrder& o) {
        o.groups[0].ranges = {{0, 500}, {500, -500}, {0, 1000}};
      },
      [](BroadcastOrder& o) {
        o.groups[0].ranges = {{0, 500}, {501, 499}};
      },
      [](BroadcastOrder& o) {
        o.groups[0].ranges = {{0, 500}, {499, 501}};
      },
      [](BroadcastOrder& o) {
        o.groups[0].ranges.assign(100'000, {0, 0});
      },
      [](BroadcastOrder& o) {
        o.groups.push_back({"other", 1, 2, "secret", {{0, 1000}}});
      },
      [](BroadcastOrder& o) { o.manifest.total_bytes = int64_t{1} << 60; },
      [](BroadcastOrder& o) { o.manifest.bucket_bytes = 0; },
  };
  int number = 0;
  for (const auto& harm : harms) {
    SCOPED_TRACE(number++);
    order_ = good;
    harm(order_);
    EXPECT_EQ(Receive().code(), Code::kInvalidArgument);
  }
  order_ = good;
  order_.groups[0].ranges = {{64, 936}};  // the beginning is not here
  EXPECT_EQ(Receive().code(), Code::kFailedPrecondition);
}

TEST_F(BroadcastReceiverTest, AskSaysWhatThisEngineCanDo) {
  const auto fresh = Ask(version_.manifest, "lonely");
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_FALSE(fresh->prepared);
  EXPECT_EQ(fresh->verified, 0);
  EXPECT_EQ(Ask(version_.manifest, "other").status().code(), Code::kUnimplemented);
  ASSERT_TRUE(subscriber_->Prepare(version_.manifest, version_.bytes).ok());
  EXPECT_TRUE(Ask(version_.manifest, "lonely")->prepared);
  ASSERT_TRUE(subscriber_->Activate(version_.receipt).ok());
  const VersionForTest older = MakeVersion({0, 0}, 1, 1000, 64);
  EXPECT_EQ(Ask(older.manifest, "lonely").status().code(), Code::kFailedPrecondition);
}

// What a failed group leaves belongs to one version with one division into buckets, of which the
// content hash covers neither.
TEST_F(BroadcastReceiverTest, KeepsWhatAFailedGroupBroughtForTheSameVersionOnly) {
  backend_->brings = version_.bytes;
  ASSERT_EQ(Receive().code(), Code::kUnavailable);
  EXPECT_EQ(Ask(version_.manifest, "lonely")->verified, 256);
  const BroadcastOrder good = order_;
  order_.manifest.bucket_bytes = order_.piece_bytes = 63;  // as many buckets
  order_.groups[0].ranges = {{63, 937}};
  EXPECT_EQ(Ask(order_.manifest, "lonely")->verified, 0);
  EXPECT_EQ(Receive().code(), Code::kFailedPrecondition);
  order_ = good;
  order_.groups[0].ranges = {{320, 680}};
  EXPECT_EQ(Receive().code(), Code::kFailedPrecondition);
  // Bytes that the next group brings are verified again, also those that were here.
  order_ = good;
  order_.groups[0].id = "next";
  order_.groups[0].ranges = {{128, 872}};
  EXPECT_EQ(Receive().code(), Code::kUnavailable);
  EXPECT_EQ(Ask(version_.manifest, "lonely")->verified, 128);
  // As many buckets of other sizes: needs other memory.
  order_.groups[0].id = "last";
  order_.manifest.bucket_bytes = order_.piece_bytes = 1 << 16;
  order_.manifest.total_bytes = 15 * order_.piece_bytes + 1;
  order_.manifest.entries.clear();
  order_.groups[0].ranges = {{0, order_.manifest.total_bytes}};
  EXPECT_EQ(Receive().code(), Code::kUnavailable);
  EXPECT_EQ(Ask(order_.manifest, "lonely")->verified, 0);
}

// The first group would not connect in time.
TEST_F(BroadcastReceiverTest, AGroupThatFailsEndsTheOthers) {
  order_.groups = {{"lonely", 1, 2, "secret", {{0, 100}, {600, 400}}},
                   {"unknown", 1, 2, "", {{100, 500}}}};
  EXPECT_EQ(Receive().code(), Code::kUnavailable);
  EXPECT_EQ(Ask(version_.manifest, "lonely")->verified, 0);
}

TEST_F(BroadcastReceiverTest, ANewerCallEndsTheOneInProgress) {
  absl::Status ended;
  {
    const std::jthread receiving([&] { ended = Receive(); });
    ASSERT_TRUE(backend_->connecting.WaitFor(absl::Minutes(2)));
    EXPECT_FALSE(Ask(version_.manifest, "lonely")->prepared);
  }
  EXPECT_EQ(ended.code(), Code::kAborted);
}

TEST_F(BroadcastReceiverTest, OnlyAMemberOfTheGroupNeedsNoRendezvous) {
  backend_->brings = version_.bytes;
  order_.groups[0].rendezvous = "";
  EXPECT_EQ(Receive().code(), Code::kUnavailable);
  EXPECT_EQ(Ask(version_.manifest, "lonely")->verified, 0);
  order_.groups[0].rendezvous = "secret";
  EXPECT_EQ(Receive().code(), Code::kUnavailable);  // after two pieces
  EXPECT_EQ(Ask(version_.manifest, "lonely")->verified, 256);
}

TEST_F(BroadcastReceiverTest, NothingBeginsOnceItIsClosedOrCancelled) {
  EXPECT_EQ(
      receiver_.Receive(order_, SystemClock::Get().Now() + absl::Minutes(2), [] { return true; })
          .status()
          .code(),
      Code::kAborted);
  receiver_.Close("left the job");
  EXPECT_EQ(Receive().code(), Code::kAborted);
  EXPECT_FALSE(backend_->connecting.HasBeenNotified());
}

}  // namespace
}  // namespace freshet
