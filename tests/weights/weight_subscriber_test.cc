#include "weights/weight_subscriber.h"

#include <algorithm>
#include <string>
#include <thread>

#include "base/str_cat.h"
#include "gtest/gtest.h"
#include "tests/contract/weight_version.h"

namespace freshet {
namespace {

constexpr absl::StatusCode kPrecondition = absl::StatusCode::kFailedPrecondition;

VersionForTest At(int64_t version, int64_t epoch = 1, int64_t lineage = 0) {
  return MakeVersion({lineage, version}, epoch, 1000, 64);
}
absl::Status Prepare(WeightSubscriber& subscriber, const VersionForTest& version) {
  return subscriber.Prepare(version.manifest, version.bytes);
}

TEST(WeightSubscriber, ReleasesAVersionOnlyWithItsReceipt) {
  int activations = 0;
  WeightSubscriber subscriber([&] { ++activations; });
  const VersionForTest version = At(1);
  ASSERT_TRUE(Prepare(subscriber, version).ok());
  EXPECT_FALSE(subscriber.Take().has_value());
  EXPECT_EQ(activations, 0);
  ASSERT_TRUE(subscriber.Activate(version.receipt).ok());
  EXPECT_EQ(activations, 1);
  EXPECT_EQ(subscriber.Take()->manifest.policy, (PolicyVersion{0, 1}));
  EXPECT_FALSE(subscriber.Take().has_value());
}

TEST(WeightSubscriber, TheSameVersionOfANewerLineageIsNewer) {
  WeightSubscriber subscriber;
  const VersionForTest former = At(3);
  const VersionForTest redone = At(3, 2, 1);
  ASSERT_TRUE(Prepare(subscriber, former).ok());
  ASSERT_TRUE(subscriber.Activate(former.receipt).ok());
  ASSERT_TRUE(Prepare(subscriber, redone).ok());
  ASSERT_TRUE(subscriber.Activate(redone.receipt).ok());
  EXPECT_EQ(subscriber.Take()->manifest.policy, (PolicyVersion{1, 3}));
  EXPECT_EQ(Prepare(subscriber, At(4)).code(), kPrecondition) << "a version of lineage 0";
  EXPECT_EQ(subscriber.AtLeast({0, 3})->manifest.policy, (PolicyVersion{1, 3}));
}

TEST(WeightSubscriber, AReceiptWithoutPreparedBytesIsRefused) {
  WeightSubscriber subscriber;
  EXPECT_EQ(subscriber.Activate(At(1).receipt).code(), kPrecondition);
  EXPECT_FALSE(subscriber.Take().has_value());
}

TEST(WeightSubscriber, KeepsNothingOfTornBytes) {
  WeightSubscriber subscriber;
  const VersionForTest version = At(1);
  EXPECT_EQ(subscriber.Prepare(version.manifest, Torn(version.bytes, 500)).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(subscriber.Activate(version.receipt).code(), kPrecondition);
  EXPECT_FALSE(subscriber.Take().has_value());
}

TEST(WeightSubscriber, TornBytesOfTheNextVersionLeaveThePreparedOneInPlace) {
  WeightSubscriber subscriber;
  const VersionForTest first = At(1);
  const VersionForTest second = At(2);
  ASSERT_TRUE(Prepare(subscriber, first).ok());
  EXPECT_FALSE(subscriber.Prepare(second.manifest, first.bytes).ok());
  EXPECT_TRUE(subscriber.Activate(first.receipt).ok());
}

TEST(WeightSubscriber, RefusesAbsentBytes) {
  WeightSubscriber subscriber;
  EXPECT_EQ(subscriber.Prepare(At(1).manifest, nullptr).code(), absl::StatusCode::kDataLoss);
}

TEST(WeightSubscriber, RefusesAReceiptOfAnotherVersionOrContent) {
  WeightSubscriber subscriber;
  const VersionForTest version = At(1);
  ASSERT_TRUE(Prepare(subscriber, version).ok());
  CommitReceipt other_content = version.receipt;
  other_content.content_hash = "0000000000000000";
  EXPECT_EQ(subscriber.Activate(other_content).code(), kPrecondition);
  CommitReceipt other_version = version.receipt;
  other_version.policy.version = 2;
  EXPECT_EQ(subscriber.Activate(other_version).code(), kPrecondition);
  CommitReceipt other_lineage = version.receipt;
  other_lineage.policy.lineage = 1;
  EXPECT_EQ(subscriber.Activate(other_lineage).code(), kPrecondition);
  EXPECT_FALSE(subscriber.Take().has_value());
  EXPECT_TRUE(subscriber.Activate(version.receipt).ok());
}

TEST(WeightSubscriber, FencesOlderEpochsInBothPhases) {
  WeightSubscriber subscriber;
  const VersionForTest old_prepared = At(1, 1);
  ASSERT_TRUE(Prepare(subscriber, old_prepared).ok());
  ASSERT_TRUE(Prepare(subscriber, At(1, 2)).ok());
  EXPECT_TRUE(subscriber.Activate(At(1, 2).receipt).ok());
  EXPECT_EQ(subscriber.Committed()->snapshot.manifest.epoch, 2) << "that of the receipt";
  const absl::Status refused = Prepare(subscriber, At(2, 1));
  EXPECT_EQ(refused.code(), kPrecondition);
  EXPECT_NE(Message(refused).find("fenced by epoch 2"), std::string::npos);
  EXPECT_EQ(subscriber.Activate(old_prepared.receipt).code(), kPrecondition);
}

TEST(WeightSubscriber, OnlyAReceiptFences) {
  constexpr int64_t kHuge = int64_t{1} << 60;
  WeightSubscriber subscriber;
  ASSERT_TRUE(Prepare(subscriber, At(1)).ok());
  ASSERT_TRUE(subscriber.Activate(At(1).receipt).ok());
  ASSERT_TRUE(subscriber.Admit(At(2, kHuge).manifest).ok());
  ASSERT_TRUE(Prepare(subscriber, At(kHuge)).ok());
  ASSERT_TRUE(Prepare(subscriber, At(2)).ok());
  // The same version with a different manifest epoch.
  ASSERT_TRUE(Prepare(subscriber, At(2, kHuge)).ok());
  ASSERT_TRUE(subscriber.Activate(At(2).receipt).ok());
  EXPECT_EQ(subscriber.Committed()->snapshot.manifest.epoch, 1);
  ASSERT_TRUE(Prepare(subscriber, At(3)).ok());
  EXPECT_TRUE(subscriber.Activate(At(3).receipt).ok());
}

TEST(WeightSubscriber, WhatAPeerSaysIsCommittedStandsBackForTheTrainer) {
  constexpr int64_t kHuge = int64_t{1} << 60;
  int activations = 0;
  WeightSubscriber subscriber([&] { ++activations; });
  const auto take = [&](const VersionForTest& version) {
    return subscriber.TakeFromPeer({{version.manifest, version.bytes}, version.receipt});
  };
  ASSERT_TRUE(take(At(kHuge, kHuge, kHuge)).ok());
  EXPECT_EQ(subscriber.Take()->manifest.policy.version, kHuge);
  EXPECT_EQ(activations, 1);
  ASSERT_TRUE(Prepare(subscriber, At(4)).ok());
  ASSERT_TRUE(subscriber.Activate(At(4).receipt).ok());
  EXPECT_EQ(subscriber.Take()->manifest.policy.version, 4);
  EXPECT_EQ(take(At(3)).code(), kPrecondition) << "older than what the trainer activated";
  EXPECT_TRUE(take(At(4)).ok()) << "held already";
  EXPECT_EQ(activations, 2);
  CommittedWeights other{{At(5).manifest, At(5).bytes}, At(6).receipt};
  EXPECT_EQ(subscriber.TakeFromPeer(other).code(), kPrecondition);
}

TEST(WeightSubscriber, TheTrainerConfirmsWhatAPeerHasGiven) {
  WeightSubscriber subscriber;
  const VersionForTest version = At(4, 2);
  ASSERT_TRUE(subscriber.TakeFromPeer({{version.manifest, version.bytes}, version.receipt}).ok());
  EXPECT_EQ(*subscriber.Admit(version.manifest), WeightSubscriber::Admission::kHeld);
  // Different bytes of the same version: the trainer's take precedence over a peer's.
  EXPECT_EQ(*subscriber.Admit(MakeVersion({0, 4}, 2, 999, 64).manifest),
            WeightSubscriber::Admission::kBring);
  ASSERT_TRUE(subscriber.Activate(version.receipt).ok());
  EXPECT_EQ(Prepare(subscriber, At(3, 2)).code(), kPrecondition);
  EXPECT_EQ(Prepare(subscriber, At(5, 1)).code(), kPrecondition) << "fenced by the receipt";
}

TEST(WeightSubscriber, AnOlderPreparedVersionIsNotActivatedAfterANewerOne) {
  WeightSubscriber subscriber;
  const VersionForTest newer = At(5);
  ASSERT_TRUE(Prepare(subscriber, At(3)).ok());
  ASSERT_TRUE(subscriber.TakeFromPeer({{newer.manifest, newer.bytes}, newer.receipt}).ok());
  ASSERT_TRUE(subscriber.Activate(newer.receipt).ok());
  EXPECT_EQ(subscriber.Activate(At(3).receipt).code(), kPrecondition);
  EXPECT_EQ(subscriber.Committed()->snapshot.manifest.policy.version, 5);
}

TEST(WeightSubscriber, WhatIsPreparedIsDroppedForANewerVersionOfAPeer) {
  for (const int64_t prepared : {9, 10, 11}) {
    WeightSubscriber subscriber;
    const VersionForTest pulled = At(10);
    ASSERT_TRUE(Prepare(subscriber, At(prepared)).ok());
    ASSERT_TRUE(subscriber.TakeFromPeer({{pulled.manifest, pulled.bytes}, pulled.receipt}).ok());
    // The receipt arrives late.
    EXPECT_EQ(subscriber.Activate(At(prepared).receipt).ok(), prepared >= 10);
    EXPECT_EQ(subscriber.Committed()->snapshot.manifest.policy.version,
              std::max<int64_t>(prepared, 10));
  }
}

// A trainer of epoch 1 continues after it was stopped in the middle of a publication.
TEST(WeightSubscriber, ACommittedVersionOfAPeerIsNotReplacedByAnOlderOne) {
  WeightSubscriber subscriber;
  const VersionForTest pulled = At(10, 2);
  ASSERT_TRUE(subscriber.TakeFromPeer({{pulled.manifest, pulled.bytes}, pulled.receipt}).ok());
  subscriber.OnCommitted({0, 9});
  EXPECT_TRUE(subscriber.Admit(At(9).manifest).ok()) << "the peer may have made version 10 up";
  ASSERT_TRUE(Prepare(subscriber, At(9)).ok());
  subscriber.OnCommitted({0, 10});
  EXPECT_EQ(subscriber.Activate(At(9).receipt).code(), kPrecondition);
  EXPECT_EQ(Prepare(subscriber, At(9)).code(), kPrecondition);
  EXPECT_EQ(subscriber.Committed()->snapshot.manifest.policy.version, 10);
  // The trainer's own bytes of the same version, and newer versions, are still accepted.
  const VersionForTest own = MakeVersion({0, 10}, 2, 999, 64);
  ASSERT_TRUE(Prepare(subscriber, own).ok());
  EXPECT_TRUE(subscriber.Activate(own.receipt).ok());
  ASSERT_TRUE(Prepare(subscriber, At(11, 2)).ok());
  EXPECT_TRUE(subscriber.Activate(At(11, 2).receipt).ok());
}

TEST(WeightSubscriber, AReceiptOfANewerEpochFencesTheOlder) {
  WeightSubscriber subscriber;
  ASSERT_TRUE(Prepare(subscriber, At(1, 1)).ok());
  EXPECT_FALSE(subscriber.Activate(At(5, 7).receipt).ok());
  EXPECT_EQ(subscriber.Activate(At(1, 1).receipt).code(), kPrecondition);
  EXPECT_FALSE(subscriber.Take().has_value());
}

TEST(WeightSubscriber, NeverGoesBack) {
  WeightSubscriber subscriber;
  ASSERT_TRUE(Prepare(subscriber, At(3)).ok());
  ASSERT_TRUE(subscriber.Activate(At(3).receipt).ok());
  EXPECT_EQ(Prepare(subscriber, At(2)).code(), kPrecondition);
  EXPECT_EQ(subscriber.Activate(At(2).receipt).code(), kPrecondition);
  EXPECT_EQ(subscriber.Take()->manifest.policy.version, 3);
  EXPECT_TRUE(Prepare(subscriber, At(4)).ok());
}

TEST(WeightSubscriber, ARepeatedVersionIsHeldAndNotTakenAgain) {
  int activations = 0;
  WeightSubscriber subscriber([&] { ++activations; });
  EXPECT_EQ(*subscriber.Admit(At(3).manifest), WeightSubscriber::Admission::kBring);
  ASSERT_TRUE(Prepare(subscriber, At(3)).ok());
  EXPECT_EQ(*subscriber.Admit(At(3).manifest), WeightSubscriber::Admission::kHeld);
  ASSERT_TRUE(subscriber.Activate(At(3).receipt).ok());
  ASSERT_TRUE(subscriber.Take().has_value());
  EXPECT_EQ(*subscriber.Admit(At(3).manifest), WeightSubscriber::Admission::kHeld);
  EXPECT_TRUE(Prepare(subscriber, At(3)).ok());
  EXPECT_TRUE(subscriber.Activate(At(3).receipt).ok());
  EXPECT_EQ(activations, 1);
  EXPECT_FALSE(subscriber.Take().has_value());
}

TEST(WeightSubscriber, RefusesOtherBytesForTheActiveVersion) {
  WeightSubscriber subscriber;
  ASSERT_TRUE(Prepare(subscriber, At(3)).ok());
  ASSERT_TRUE(subscriber.Activate(At(3).receipt).ok());
  const VersionForTest other = MakeVersion({0, 3}, 1, 999, 64);
  EXPECT_EQ(subscriber.Admit(other.manifest).status().code(), kPrecondition);
  EXPECT_EQ(Prepare(subscriber, other).code(), kPrecondition);
}

TEST(WeightSubscriber, ATrainerThatComesBackWithTheActiveVersionFencesTheFormer) {
  WeightSubscriber subscriber;
  ASSERT_TRUE(Prepare(subscriber, At(3, 1)).ok());
  ASSERT_TRUE(subscriber.Activate(At(3, 1).receipt).ok());
  ASSERT_TRUE(Prepare(subscriber, At(3, 2)).ok());
  ASSERT_TRUE(subscriber.Activate(At(3, 2).receipt).ok());
  EXPECT_EQ(Prepare(subscriber, At(4, 1)).code(), kPrecondition);
  const auto committed = subscriber.Committed();
  ASSERT_TRUE(committed.has_value());
  EXPECT_EQ(committed->receipt.epoch, 2);
  EXPECT_EQ(committed->snapshot.manifest.epoch, 2);
}

TEST(WeightSubscriber, CommittedIsTheNewestActivatedVersion) {
  WeightSubscriber subscriber;
  ASSERT_TRUE(Prepare(subscriber, At(1)).ok());
  EXPECT_FALSE(subscriber.Committed().has_value());
  ASSERT_TRUE(subscriber.Activate(At(1).receipt).ok());
  ASSERT_TRUE(subscriber.Take().has_value());
  ASSERT_TRUE(Prepare(subscriber, At(2)).ok());
  const auto committed = subscriber.Committed();
  ASSERT_TRUE(committed.has_value());
  EXPECT_EQ(committed->snapshot.manifest.policy.version, 1);
  EXPECT_EQ(*committed->snapshot.bytes, *At(1).bytes);
  EXPECT_EQ(committed->receipt.content_hash, At(1).receipt.content_hash);
}

TEST(WeightSubscriber, ANewLineageIsNewerWhateverItsVersion) {
  WeightSubscriber subscriber;
  ASSERT_TRUE(Prepare(subscriber, At(9)).ok());
  ASSERT_TRUE(subscriber.Activate(At(9).receipt).ok());
  ASSERT_TRUE(Prepare(subscriber, At(2, 2, 1)).ok());
  ASSERT_TRUE(subscriber.Activate(At(2, 2, 1).receipt).ok());
  EXPECT_EQ(subscriber.Take()->manifest.policy, (PolicyVersion{1, 2}));
  EXPECT_EQ(Prepare(subscriber, At(10, 2, 0)).code(), kPrecondition);
}

TEST(WeightSubscriber, PreparingTheNextLeavesTheActivatedOneToTake) {
  WeightSubscriber subscriber;
  ASSERT_TRUE(Prepare(subscriber, At(1)).ok());
  ASSERT_TRUE(subscriber.Activate(At(1).receipt).ok());
  ASSERT_TRUE(Prepare(subscriber, At(2)).ok());
  const auto taken = subscriber.Take();
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->manifest.policy.version, 1);
  ASSERT_TRUE(subscriber.Activate(At(2).receipt).ok());
  EXPECT_EQ(subscriber.Take()->manifest.policy.version, 2);
}

TEST(WeightSubscriber, KeepsTheVersionThatAnEvaluationWillAskFor) {
  WeightSubscriber subscriber;
  subscriber.KeepEvery(2);
  for (int64_t v = 1; v <= 3; ++v) {
    ASSERT_TRUE(Prepare(subscriber, At(v)).ok());
    ASSERT_TRUE(subscriber.Activate(At(v).receipt).ok());
  }
  EXPECT_EQ(subscriber.AtLeast({0, 2})->manifest.policy, (PolicyVersion{0, 2}));
  EXPECT_EQ(subscriber.AtLeast({0, 3})->manifest.policy, (PolicyVersion{0, 3}));
  EXPECT_EQ(subscriber.AtLeast({0, 1})->manifest.policy, (PolicyVersion{0, 3}));
  EXPECT_FALSE(subscriber.AtLeast({0, 4}).has_value());
}

TEST(WeightSubscriber, HoldsTheVersionOfAnEvaluationForTheOtherSets) {
  WeightSubscriber subscriber;
  subscriber.KeepEvery(2);
  for (int64_t v = 2; v <= 4; ++v) {
    ASSERT_TRUE(Prepare(subscriber, At(v)).ok());
    ASSERT_TRUE(subscriber.Activate(At(v).receipt).ok());
    if (v == 2) subscriber.Hold(subscriber.AtLeast({0, 2}));
  }
  EXPECT_EQ(subscriber.AtLeast({0, 2})->manifest.policy, (PolicyVersion{0, 2}));
  subscriber.Hold(std::nullopt);
  EXPECT_EQ(subscriber.AtLeast({0, 2})->manifest.policy, (PolicyVersion{0, 4}));
}

TEST(WeightSubscriber, HoldsAtMostOnePreparedVersion) {
  WeightSubscriber subscriber;
  const VersionForTest first = At(1);
  const std::weak_ptr<const WeightArena> watch = first.bytes;
  {
    const VersionForTest dropped = MakeVersion({0, 1}, 1, 64, 64);
    ASSERT_TRUE(Prepare(subscriber, dropped).ok());
    EXPECT_EQ(dropped.bytes.use_count(), 2);
    ASSERT_TRUE(Prepare(subscriber, At(2)).ok());
    EXPECT_EQ(dropped.bytes.use_count(), 1);
    EXPECT_FALSE(subscriber.Activate(dropped.receipt).ok());
  }
  EXPECT_EQ(watch.use_count(), 1);
}

TEST(WeightSubscriber, AnEngineSeesOnlyWholeVersionsWhileAnotherThreadPublishes) {
  WeightSubscriber subscriber;
  constexpr int64_t kVersions = 200;
  std::jthread publisher([&] {
    for (int64_t v = 1; v <= kVersions; ++v) {
      const VersionForTest version = At(v);
      ASSERT_TRUE(Prepare(subscriber, version).ok());
      ASSERT_TRUE(subscriber.Activate(version.receipt).ok());
    }
  });
  int64_t last = 0;
  while (last < kVersions) {
    const auto taken = subscriber.Take();
    if (!taken.has_value()) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_GT(taken->manifest.policy.version, last);
    last = taken->manifest.policy.version;
    ASSERT_TRUE(VerifyBuckets(taken->manifest, *taken->bytes).ok());
  }
}

}  // namespace
}  // namespace freshet
