// The checkpoint from which a work goes on, and stores that fail at its start.

#include <filesystem>
#include <string>

#include "base/str_cat.h"
#include "tests/trainer/service/training_work_fixture.h"
#include "trainer/service/training_work.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

using TrainingWorkRecoveryTest = TrainingWorkTest;

TEST_F(TrainingWorkRecoveryTest, GoesOnFromTheNewestCheckpoint) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  Save({0, 2}, DigestOf({0, 2}));
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-2"));
  EXPECT_THAT(Only({"train"}), ElementsAre("train 3", "train 4"));
}

TEST_F(TrainingWorkRecoveryTest, AfterALossOfStateTheNextWorkGoesOnFromTheNewestCheckpoint) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  learners_.loses_state_at = 3;
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(rows_.states_lost, 1);
  EXPECT_THAT(events_.Keys("{job}:events"), testing::Contains(testing::StartsWith("rank_lost/")));
  learners_.loses_state_at = 0;
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-1", "step-1"));
  EXPECT_THAT(Only({"train"}), ElementsAre("train 2", "train 3", "train 2", "train 3", "train 4"));
}

TEST_F(TrainingWorkRecoveryTest, AnEventNamesEveryRankWhoseLossMadeTheStepFail) {
  Produce(8);
  learners_.loses_ranks_at = 1;
  EXPECT_TRUE(absl::IsUnavailable(Run()));
  EXPECT_EQ(rows_.states_lost, 0);
  EXPECT_THAT(events_.Keys("{job}:events"),
              testing::Contains(testing::StartsWith("rank_lost/")).Times(2));
}

TEST_F(TrainingWorkRecoveryTest, AReplacedCheckpointIsPassedOverForTheOneBefore) {
  ReplaceFromStepTwo();
  const size_t before = Only({"train"}).size();
  bool set_aside = false;
  learners_.on_train = [&](int64_t) { set_aside |= Has("replaced-step-3") && !Has("step-3"); };
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-3", "step-1"));
  const auto trained = Only({"train"});
  EXPECT_THAT(
      std::vector<std::string>(trained.begin() + static_cast<ptrdiff_t>(before), trained.end()),
      ElementsAre("train 2", "train 3", "train 4"));
  EXPECT_TRUE(set_aside);
  const auto found = FindAllCheckpoints(Root(), "job");
  ASSERT_TRUE(found.ok() && !found->complete.empty());
  EXPECT_EQ(found->complete.front().state.policy.version, 4);
  EXPECT_GE(found->complete.front().state.policy.lineage, 1);
  EXPECT_FALSE(Has("replaced-step-3")) << "no use any more";
}

TEST_F(TrainingWorkRecoveryTest, ACheckpointAheadOfARestoredStoreIsPassedOver) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  // More than FindAllCheckpoints verifies.
  for (int64_t version = 3; version <= 7; ++version) {
    Save({0, version}, "of what the store has forgotten");
  }
  RunWell();
  EXPECT_THAT(learners_.loaded,
              ElementsAre("step-7", "step-6", "step-5", "step-4", "step-3", "step-1"));
}

TEST_F(TrainingWorkRecoveryTest, ACheckpointOfOtherSamplesIsPassedOver) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  Save({0, 2}, "of other samples");
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-2", "step-1"));
  EXPECT_TRUE(Has("step-4"));
}

TEST_F(TrainingWorkRecoveryTest, ADamagedCheckpointIsPassedOverForTheOneBefore) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  Save({0, 2}, DigestOf({0, 2}));
  learners_.damaged = "step-2";
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-2", "step-1"));
}

// Damage is detected before anything is loaded, and does not use up a retained slot.
TEST_F(TrainingWorkRecoveryTest, ADamagedCheckpointIsSetAsideAndNotCountedAsKept) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2", "weights of step 3"});
  Save({0, 1}, DigestOf({0, 1}));
  for (const int64_t step : {2, 3}) {
    Save({0, step}, "");
    std::fstream file(StrCat(Root(), "/step-", step, "/model.safetensors"),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.put('\x7f');  // keeps the size
  }
  bool set_aside = false;
  learners_.on_train = [&](int64_t) {
    set_aside |= Has("replaced-step-2") && Has("replaced-step-3") && !Has("step-3");
  };
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-1"));
  EXPECT_TRUE(set_aside);
  EXPECT_TRUE(Has("step-4"));
  EXPECT_TRUE(Has("step-1")) << "the other one of the two that are kept";
  EXPECT_FALSE(Has("replaced-step-3"));
}

TEST_F(TrainingWorkRecoveryTest, WithoutAnOlderOneItFailsAndLeavesAllAsItWas) {
  ReplaceFromStepTwo();
  std::filesystem::remove_all(Root() + "/step-1");
  Save({0, 2}, "d");
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("version 3 of lineage 0 is not where lineage 1"));
  EXPECT_THAT(learners_.loaded, ElementsAre("step-3", "step-2"));
  EXPECT_TRUE(Has("step-3"));
  EXPECT_TRUE(Has("step-2"));
}

TEST_F(TrainingWorkRecoveryTest, WithoutTheFormerTrainersCheckpointsItIsRefused) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  const auto opened = store().OpenEpoch("former", {0, 1});
  ASSERT_TRUE(opened.ok());
  ASSERT_TRUE(store().OpenEpoch("former", {0, 2}).ok());  // both become durable; 0 is dropped
  const absl::Status status = Run();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("load version 1 or a newer one"));
}

TEST_F(TrainingWorkRecoveryTest, ADatastoreThatIsAwayAtTheStartIsWaitedFor) {
  Produce(8);
  const runtime::JobWork* work = nullptr;
  int opened = 0;
  context_.open_store =
      [&](const std::string&) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    cluster::v1::AssignmentStatus status;
    status.set_state(cluster::v1::AssignmentStatus::STATE_RUNNING);
    work->FillStatus(status);
    EXPECT_EQ(status.state(), cluster::v1::AssignmentStatus::STATE_STARTING);
    EXPECT_EQ(status.waits_for(), opened == 0 ? "" : "the datastore: the connection was closed");
    if (++opened < 20) return absl::UnavailableError("the connection was closed");
    return std::make_unique<ForwardingTrajectoryStore>(store());
  };
  const auto created = TrainingWork::Create(assign_, "t#1", controller_, context_);
  ASSERT_TRUE(created.ok()) << created.status();
  work = created->get();
  const absl::Status status = (*created)->Run(stop_.get_token());
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(opened, 20);
  EXPECT_TRUE(Has("step-4"));
}

// Models a Redis that rejects the password for a while.
class LockedStore final : public ForwardingTrajectoryStore {
 public:
  using ForwardingTrajectoryStore::ForwardingTrajectoryStore;
  absl::StatusOr<NextBatchReply> NextBatch(int64_t epoch, int64_t step) override {
    if (refusals_-- > 0) return absl::PermissionDeniedError("redis refused EVALSHA: NOAUTH");
    return ForwardingTrajectoryStore::NextBatch(epoch, step);
  }

 private:
  int refusals_ = 5;
};

TEST_F(TrainingWorkRecoveryTest, APasswordThatIsBeingChangedIsWaitedFor) {
  Produce(8);
  context_.open_store =
      [this](const std::string&) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    return std::make_unique<LockedStore>(store());
  };
  RunWell();
  EXPECT_TRUE(Has("step-4"));
}

// Loses the first answer to OpenEpoch.
class LosingStore final : public ForwardingTrajectoryStore {
 public:
  using ForwardingTrajectoryStore::ForwardingTrajectoryStore;
  absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest& request) override {
    auto reply = ForwardingTrajectoryStore::OpenEpochFor(request);
    if (std::exchange(lost_, true)) return reply;
    return absl::UnavailableError("connection reset");
  }

 private:
  bool lost_ = false;
};

TEST_F(TrainingWorkRecoveryTest, ALostAnswerToOpenEpochOpensOneEpoch) {
  Produce(8);
  context_.open_store =
      [this](const std::string&) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    return std::make_unique<LosingStore>(store());
  };
  RunWell();
  EXPECT_EQ(store().OpenEpoch("reader", {0, 4})->epoch, 2);
  RunWell();  // another work opens its own epoch
  EXPECT_EQ(store().OpenEpoch("reader", {0, 4})->epoch, 4);
}

// Loses the answer, too; another trainer opens an epoch before the retry.
class OvertakenStore final : public ForwardingTrajectoryStore {
 public:
  OvertakenStore(TrajectoryStore& store, PolicyVersion others)
      : ForwardingTrajectoryStore(store), others_(others) {}
  absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest& request) override {
    auto reply = ForwardingTrajectoryStore::OpenEpochFor(request);
    if (std::exchange(lost_, true)) return reply;
    EXPECT_TRUE(ForwardingTrajectoryStore::OpenEpochFor({"other", others_, ""}).ok());
    return absl::UnavailableError("connection reset");
  }

 private:
  const PolicyVersion others_;
  bool lost_ = false;
};

TEST_F(TrainingWorkRecoveryTest, OneThatIsFencedWhileItAsksAgainPassesNoCheckpointOver) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  Save({0, 2}, DigestOf({0, 2}));
  const int64_t before = store().OpenEpoch("reader", {0, 2})->epoch;
  context_.open_store =
      [this](const std::string&) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    return std::make_unique<OvertakenStore>(store(), PolicyVersion{0, 2});
  };
  EXPECT_EQ(Run().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(learners_.loaded, ElementsAre("step-2"));
  EXPECT_TRUE(Has("step-2"));
  EXPECT_TRUE(store().NextBatch(before + 2, 3).ok()) << "the other one goes on";
}

// Writes to /dev/full fail with ENOSPC.
class FullDisk final : public FaultPoints {
 public:
  explicit FullDisk(std::string root) : root_(std::move(root)) {}
  void Reach(std::string_view point) override {
    if (point != "checkpoint_write") return;
    for (const auto& entry : std::filesystem::directory_iterator(root_)) {
      if (entry.path().extension() != ".tmp") continue;
      std::filesystem::create_symlink("/dev/full", entry.path() / "manifest.json.tmp");
    }
  }

 private:
  std::string root_;
};

TEST_F(TrainingWorkRecoveryTest, AFullDiskEndsTheWorkAndNothingIsLostWhenThereIsRoom) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 2}, DigestOf({0, 2}));
  FullDisk disk(Root());
  context_.faults = &disk;
  const absl::Status full = Run();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_FALSE(Has("step-4"));
  context_.faults = &points_;
  RunWell();
  EXPECT_THAT(learners_.loaded, ElementsAre("step-2", "step-2"));
  EXPECT_TRUE(Has("step-4"));
  EXPECT_THAT(events_.Keys("{job}:events"),
              ElementsAre("step/0/3", "step/0/4", StartsWith("checkpoint_failed/")));
}

TEST_F(TrainingWorkRecoveryTest, AnotherFailureOfTheStorePassesNoneOver) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  Save({0, 2}, DigestOf({0, 2}));
  context_.open_store =
      [this](const std::string&) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    class Broken final : public ForwardingTrajectoryStore {
     public:
      using ForwardingTrajectoryStore::ForwardingTrajectoryStore;
      absl::StatusOr<OpenEpochReply> OpenEpochFor(const EpochRequest&) override {
        return Internal("a script failed");
      }
    };
    return std::make_unique<Broken>(store());
  };
  EXPECT_EQ(Run().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(learners_.loaded, ElementsAre("step-2"));
}

}  // namespace
}  // namespace freshet
