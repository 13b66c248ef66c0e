#include "weights/grpc/weight_puller.h"

#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"
#include "tests/weights/grpc/weight_plane_fixture.h"
#include "weights/grpc/manifest_codec.h"

namespace freshet {
namespace {

// Answers Pull with scripted messages.
class ScriptedMember final : public weights::v1::WeightService::Service {
 public:
  explicit ScriptedMember(std::vector<weights::v1::PullReply> replies, bool hang = false)
      : replies_(std::move(replies)), hang_(hang) {}
  grpc::Status Pull(grpc::ServerContext* context, const weights::v1::PullRequest*,
                    grpc::ServerWriter<weights::v1::PullReply>* writer) override {
    called_.Notify();
    for (const auto& reply : replies_) writer->Write(reply);
    while (hang_ && !context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::OK;
  }
  bool AwaitCall() { return called_.WaitFor(absl::Seconds(60)); }

 private:
  const std::vector<weights::v1::PullReply> replies_;
  const bool hang_;
  Notification called_;
};

weights::v1::PullReply HeaderOf(const VersionForTest& version) {
  weights::v1::PullReply reply;
  ManifestToProto(version.manifest, *reply.mutable_header()->mutable_manifest());
  ReceiptToProto(version.receipt, *reply.mutable_header()->mutable_receipt());
  return reply;
}
weights::v1::PullReply ChunkOf(const VersionForTest& version, size_t offset, size_t size) {
  weights::v1::PullReply reply;
  reply.mutable_chunk()->set_offset(static_cast<int64_t>(offset));
  reply.mutable_chunk()->set_data(version.bytes->data() + offset, size);
  return reply;
}

class WeightPullerTest : public testing::Test {
 protected:
  WeightPullerTest() {
    options_.job = kJob;
    options_.at_least = {0, 1};
  }
  // A member that holds `version` as committed.
  WeightMember Holder(const VersionForTest& version) {
    members_.push_back(MakeEngine(StrCat("engine-", members_.size())));
    WeightSubscriber& subscriber = members_.back()->subscriber();
    EXPECT_TRUE(subscriber.Prepare(version.manifest, version.bytes).ok());
    EXPECT_TRUE(subscriber.Activate(version.receipt).ok());
    return members_.back()->member();
  }
  WeightMember Scripted(std::vector<weights::v1::PullReply> replies, bool hang = false) {
    scripted_.push_back(std::make_unique<ScriptedMember>(std::move(replies), hang));
    servers_.push_back(std::make_unique<LoopbackServer>(scripted_.back().get()));
    return {StrCat("scripted-", scripted_.size()), servers_.back()->address()};
  }
  absl::StatusOr<PolicyVersion> Pull(const std::vector<WeightMember>& sources) {
    return PullWeights(options_, sources, TestChannel, joiner_, SystemClock::Get(), &counters_);
  }

  const VersionForTest version_ = MakeVersion({0, 3}, 1, (2 << 20) + 5, 64 << 10);
  PullOptions options_;
  std::vector<std::unique_ptr<TestMember>> members_;
  std::vector<std::unique_ptr<ScriptedMember>> scripted_;
  std::vector<std::unique_ptr<LoopbackServer>> servers_;
  WeightSyncCounters counters_;
  std::shared_ptr<WeightSubscriber> joiner_ = std::make_shared<WeightSubscriber>();
};

TEST_F(WeightPullerTest, TakesTheCommittedVersionOfAPeer) {
  const auto pulled = Pull({Holder(version_)});
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(*pulled, (PolicyVersion{0, 3}));
  const auto taken = joiner_->Take();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(*taken->bytes, *version_.bytes);
  // The joiner can now serve others.
  EXPECT_EQ(joiner_->Committed()->receipt.digest, version_.receipt.digest);
}

TEST_F(WeightPullerTest, TakesAnEmptyVersion) {
  EXPECT_TRUE(Pull({Holder(MakeVersion({0, 1}, 1, 0, 64))}).ok());
  EXPECT_EQ(joiner_->Take()->bytes->size(), 0U);
}

TEST_F(WeightPullerTest, TakesItFromTheTrainer) {
  TestMember trainer(
      "trainer",
      WeightEndpoint{
          nullptr,
          [this] {
            return CommittedWeights{{version_.manifest, version_.bytes}, version_.receipt};
          },
          {}});
  EXPECT_TRUE(Pull({trainer.member()}).ok());
  EXPECT_EQ(*joiner_->Take()->bytes, *version_.bytes);
}

TEST_F(WeightPullerTest, APreparedVersionIsNotGivenAway) {
  members_.push_back(MakeEngine("engine"));
  ASSERT_TRUE(members_.back()->subscriber().Prepare(version_.manifest, version_.bytes).ok());
  EXPECT_EQ(Pull({members_.back()->member()}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(joiner_->Take().has_value());
}

TEST_F(WeightPullerTest, GoesOnToTheNextSourceWhateverIsWrongWithOne) {
  options_.at_least = {0, 3};
  options_.silence_timeout = absl::Seconds(2);  // wait for the member that hangs
  VersionForTest torn = version_;
  torn.bytes = Torn(version_.bytes, 100'000);
  const size_t mib = 1 << 20;
  VersionForTest other_receipt = MakeVersion({0, 3}, 1, 100, 64);
  other_receipt.receipt.content_hash = "0000000000000000";
  VersionForTest large = MakeVersion({0, 3}, 1, 100, 64);
  large.manifest.total_bytes = int64_t{1} << 50;
  const std::vector<WeightMember> sources = {
      {"dead", "127.0.0.1:1"},
      Holder(MakeVersion({0, 2}, 1, 100, 64)),                    // older
      Scripted({}),                                               // nothing
      Scripted({ChunkOf(version_, 0, 10)}),                       // no header
      Scripted({HeaderOf(version_), HeaderOf(version_)}),         // two
      Scripted({HeaderOf(version_), ChunkOf(version_, 0, mib)}),  // half of it
      Scripted({HeaderOf(version_), ChunkOf(version_, 1, mib)}),  // a gap
      Scripted({HeaderOf(torn), ChunkOf(torn, 0, mib)}),          // another byte
      Scripted({HeaderOf(large)}),                                // too large
      Scripted({HeaderOf(other_receipt), ChunkOf(other_receipt, 0, 100)}),
      Scripted({HeaderOf(version_)}, true),  // hangs
      Holder(version_)};
  const auto pulled = Pull(sources);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(*joiner_->Take()->bytes, *version_.bytes);
  int64_t failures = 0;
  for (const auto& [cause, count] : counters_.totals().failures) failures += count;
  EXPECT_EQ(failures, 11);
}

TEST_F(WeightPullerTest, AStopEndsItAtOnceAndAsksNobodyElse) {
  options_.silence_timeout = options_.timeout = absl::Hours(1);
  std::stop_source stop;
  options_.stop = stop.get_token();
  const std::vector<WeightMember> sources = {Scripted({HeaderOf(version_)}, /*hang=*/true),
                                             Holder(version_)};
  std::jthread stopper([&] {
    EXPECT_TRUE(scripted_.front()->AwaitCall());
    stop.request_stop();
  });
  EXPECT_EQ(Pull(sources).status().code(), absl::StatusCode::kCancelled);
  EXPECT_FALSE(joiner_->Committed().has_value());
}

TEST_F(WeightPullerTest, NamesTheLastSourceWhenNoneHasIt) {
  options_.at_least = {0, 9};
  const auto pulled = Pull({{"dead", "127.0.0.1:1"}, Holder(version_)});
  EXPECT_EQ(pulled.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(pulled.status().message()).find("engine-0: "), std::string::npos);
  EXPECT_EQ(Pull({}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(WeightPullerTest, APublicationThatCameFirstWins) {
  const VersionForTest newer = MakeVersion({0, 4}, 1, 100, 64);
  ASSERT_TRUE(joiner_->Prepare(newer.manifest, newer.bytes).ok());
  ASSERT_TRUE(joiner_->Activate(newer.receipt).ok());
  const auto pulled = Pull({Holder(version_)});
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(*pulled, (PolicyVersion{0, 4}));
}

TEST(PullOrder, AsksEveryEngineAndTheTrainerWhereItIsToldTo) {
  const std::vector<WeightMember> engines = {{"a", "1"}, {"b", "2"}, {"c", "3"}};
  const WeightMember trainer = {"t", "4"};
  std::set<std::string> first;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto last = PullOrder(engines, trainer, TrainerPlace::kLast, seed);
    ASSERT_EQ(last.size(), 4U);
    EXPECT_EQ(last.back(), trainer);
    first.insert(last.front().worker);
    EXPECT_EQ(PullOrder(engines, trainer, TrainerPlace::kFirst, seed).front(), trainer);
    EXPECT_EQ(PullOrder(engines, std::nullopt, TrainerPlace::kLast, seed).size(), 3U);
  }
  EXPECT_EQ(first.size(), 3U);
  EXPECT_EQ(PullOrder({}, trainer, TrainerPlace::kLast, 1).size(), 1U);
}

TEST(PullOrder, AsksAllOfItsSiteFirst) {
  const std::vector<WeightMember> engines = {
      {"a", "1", "", "eu"}, {"b", "2", "", "us"}, {"c", "3", "", "eu"}, {"d", "4", "", ""}};
  const WeightMember trainer = {"t", "5", "", "us"};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto eu = PullOrder(engines, trainer, TrainerPlace::kLast, seed, "eu");
    ASSERT_EQ(eu.size(), 5U);
    EXPECT_EQ(eu[0].site, "eu");
    EXPECT_EQ(eu[1].site, "eu");
    EXPECT_EQ(eu[4], trainer);
    const auto us = PullOrder(engines, trainer, TrainerPlace::kLast, seed, "us");
    EXPECT_EQ(us[0].worker, "b");
    EXPECT_EQ(us[1], trainer);
  }
}

}  // namespace
}  // namespace freshet
