#ifndef FRESHET_TESTS_CONTRACT_WEIGHT_TRANSPORT_CONTRACT_H_
#define FRESHET_TESTS_CONTRACT_WEIGHT_TRANSPORT_CONTRACT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/str_cat.h"
#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"
#include "weights/weight_subscriber.h"
#include "weights/weight_transport.h"

namespace freshet {

// The implementation under test. `create` connects a transport to the given engines. The transport
// may activate from other threads, but not after its destructor returns.
struct WeightTransportBackend {
  std::string name;
  std::function<std::unique_ptr<WeightTransport>(std::vector<std::shared_ptr<WeightSubscriber>>)>
      create;
};
inline void PrintTo(const WeightTransportBackend& backend, std::ostream* out) {
  *out << backend.name;
}

class WeightTransportContract : public testing::TestWithParam<WeightTransportBackend> {
 protected:
  void Connect(int n) {
    {
      const MutexLock lock(mu_);
      activations_.assign(static_cast<size_t>(n), 0);
    }
    for (int i = 0; i < n; ++i) {
      engines_.push_back(std::make_shared<WeightSubscriber>([this, i] {
        const MutexLock lock(mu_);
        ++activations_[static_cast<size_t>(i)];
        changed_.NotifyAll();
      }));
    }
    transport_ = GetParam().create(engines_);
    ASSERT_NE(transport_, nullptr);
  }
  WeightTransport& transport() { return *transport_; }
  WeightSubscriber& engine(int i) { return *engines_[static_cast<size_t>(i)]; }

  // Waits up to 10 s for `count` activations of engine `i`, then returns what the engine takes.
  std::optional<WeightSnapshot> TakeAfter(int i, int count) {
    {
      const MutexLock lock(mu_);
      for (int waits = 0; activations_[static_cast<size_t>(i)] < count && waits < 100; ++waits) {
        changed_.WaitFor(mu_, absl::Milliseconds(100));
      }
    }
    return engine(i).Take();
  }
  // Sends `version` to all engines and expects each to take it at activation number `count`.
  void Deliver(const VersionForTest& version, int count) {
    const auto n = static_cast<int64_t>(engines_.size());
    ASSERT_EQ(transport().Publish(version.Committed()), n);
    for (int i = 0; i < n; ++i) ExpectTakes(i, count, version);
  }
  void ExpectTakes(int i, int count, const VersionForTest& version) {
    const std::optional<WeightSnapshot> taken = TakeAfter(i, count);
    ASSERT_TRUE(taken.has_value()) << "engine " << i;
    EXPECT_EQ(taken->manifest.policy, version.manifest.policy);
    EXPECT_EQ(taken->manifest.epoch, version.manifest.epoch);
    EXPECT_EQ(taken->manifest.content_hash, version.manifest.content_hash);
    ASSERT_EQ(taken->manifest.entries.size(), version.manifest.entries.size());
    EXPECT_EQ(taken->manifest.entries[0].name, version.manifest.entries[0].name);
    EXPECT_EQ(taken->manifest.entries[0].shape, version.manifest.entries[0].shape);
    EXPECT_EQ(*taken->bytes, *version.bytes);
    EXPECT_FALSE(engine(i).Take().has_value()) << "taken twice";
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<int> activations_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<WeightSubscriber>> engines_;
  std::unique_ptr<WeightTransport> transport_;  // destroyed first: it uses the members above
};

TEST_P(WeightTransportContract, CarriesEverySizeInEveryBucketing) {
  const struct {
    int64_t size;
    int64_t bucket_bytes;
  } cases[] = {{0, 1},
               {0, 4096},
               {1, 1},
               {1, 4096},
               {16, 16},
               {17, 16},
               {10007, 1},
               {10007, 64},
               {10007, 10007},
               {10007, 1 << 20},
               {(8 << 20) + 3, 64 << 10}};
  Connect(3);
  int count = 0;
  for (const auto& c : cases) {
    SCOPED_TRACE(StrCat(c.size, " bytes in buckets of ", c.bucket_bytes));
    ++count;
    Deliver(MakeVersion({0, count}, 1, c.size, c.bucket_bytes), count);
  }
}

TEST_P(WeightTransportContract, BytesThatDifferFromTheManifestReachNoEngine) {
  Connect(2);
  const VersionForTest good = MakeVersion({0, 1}, 1, 1000, 64);
  EXPECT_EQ(transport().Publish({{good.manifest, Torn(good.bytes, 999)}, good.receipt}), 0);
  // The next version is the engines' first activation.
  Deliver(MakeVersion({0, 2}, 1, 1000, 64), 1);
}

TEST_P(WeightTransportContract, OneRefusingEngineDoesNotHoldUpTheOthers) {
  Connect(3);
  // A trainer with a newer epoch has already published to engine 1.
  const VersionForTest newer = MakeVersion({0, 1}, 9, 100, 64);
  ASSERT_TRUE(engine(1).Prepare(newer.manifest, newer.bytes).ok());
  ASSERT_TRUE(engine(1).Activate(newer.receipt).ok());
  ASSERT_TRUE(engine(1).Take().has_value());
  const VersionForTest version = MakeVersion({0, 1}, 2, 1000, 64);
  EXPECT_EQ(transport().Publish(version.Committed()), 2);
  ExpectTakes(0, 1, version);
  ExpectTakes(2, 1, version);
  EXPECT_FALSE(engine(1).Take().has_value());
}

TEST_P(WeightTransportContract, AFencedTrainerPublishesToNobody) {
  Connect(2);
  Deliver(MakeVersion({0, 5}, 3, 1000, 64), 1);
  const VersionForTest zombie = MakeVersion({0, 6}, 2, 1000, 64);
  EXPECT_EQ(transport().Publish(zombie.Committed()), 0);
  Deliver(MakeVersion({0, 6}, 3, 2000, 64), 2);
}

TEST_P(WeightTransportContract, AnEngineThatDoesNotTakeGetsTheNewestLater) {
  Connect(1);
  for (int v = 1; v <= 3; ++v) {
    const VersionForTest version = MakeVersion({0, v}, 1, 1000, 64);
    ASSERT_EQ(transport().Publish(version.Committed()), 1);
  }
  ExpectTakes(0, 3, MakeVersion({0, 3}, 1, 1000, 64));
}

TEST_P(WeightTransportContract, ATakenVersionSurvivesLaterOnes) {
  Connect(1);
  const VersionForTest first = MakeVersion({0, 1}, 1, 5000, 64);
  ASSERT_EQ(transport().Publish(first.Committed()), 1);
  const std::optional<WeightSnapshot> held = TakeAfter(0, 1);
  ASSERT_TRUE(held.has_value());
  Deliver(MakeVersion({0, 2}, 1, 5000, 64), 2);
  Deliver(MakeVersion({0, 3}, 1, 5000, 64), 3);
  EXPECT_EQ(*held->bytes, *first.bytes);
}

TEST_P(WeightTransportContract, WithoutEnginesNothingHappens) {
  Connect(0);
  const VersionForTest version = MakeVersion({0, 1}, 1, 1000, 64);
  EXPECT_EQ(transport().Publish(version.Committed()), 0);
}

}  // namespace freshet

#endif  // FRESHET_TESTS_CONTRACT_WEIGHT_TRANSPORT_CONTRACT_H_
