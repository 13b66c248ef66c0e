#include "trainer/loop/trainer_loop.h"

#include <algorithm>
#include <thread>

#include "base/file.h"
#include "base/mutex.h"
#include "base/trace.h"
#include "tests/testing/log_lines.h"
#include "tests/trainer/loop/trainer_loop_fixture.h"

namespace freshet {
namespace {

using TrainerLoopTest = TrainerLoopFixture;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

TEST_F(TrainerLoopTest, StartOpensAnEpochAndPublishesTheLoadedVersion) {
  ASSERT_TRUE(loop().Start(false).ok());
  EXPECT_THAT(Events(), ElementsAre("OnCommitted", "publish 0"));
  EXPECT_EQ(loop().committed(), 0);
  EXPECT_THAT(Saved(), IsEmpty());
}

TEST_F(TrainerLoopTest, StartSavesTheLoadedVersionWhenAsked) {
  options_.steps = 0;
  ASSERT_TRUE(StartAndRun(/*save_loaded=*/true).ok());
  EXPECT_THAT(Saved(), ElementsAre(0));
  EXPECT_EQ(CountOf("MarkDurable 0"), 1);
}

TEST_F(TrainerLoopTest, AStepGoesOptimizerCommitPublishCheckpointDurable) {
  options_.checkpoint_every = 1;
  options_.steps = 1;
  Produce(2);
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_THAT(Only({"train", "point optimizer_step", "CommitStep", "OnCommitted", "point commit",
                    "OnStep"}),
              ElementsAre("OnCommitted", "train 1", "point optimizer_step", "CommitStep 1",
                          "OnCommitted", "point commit", "OnStep 1"));
  // Other threads publish, and write the checkpoint.
  EXPECT_THAT(Only({"point commit", "publish", "point publish"}),
              ElementsAre("publish 0", "point commit", "publish 1", "point publish"));
  EXPECT_THAT(Only({"OnStep", "copy", "point checkpoint_write", "point checkpoint_rename",
                    "MarkDurable", "point mark_durable"}),
              ElementsAre("OnStep 1", "copy", "point checkpoint_write", "point checkpoint_rename",
                          "MarkDurable 1", "point mark_durable"));
  EXPECT_THAT(Saved(), ElementsAre(1));
}

TEST_F(TrainerLoopTest, TimeThatAnUpdateWaitsForASnapshotIsTheCheckpoints) {
  options_.steps = 1;
  learner_.on_train = [this](int64_t) { clock_.Advance(absl::Seconds(5)); };
  learner_.checkpoint_seconds = 2;
  Produce(2);
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_EQ(observer_.last.train_seconds, 3);
  EXPECT_EQ(observer_.last.checkpoint_seconds, 2);
}

// The engine takes version 1 only while step 2 is trained.
TEST_F(TrainerLoopTest, PublishesBesideTheNextStepAndHoldsTwoVersionsAtMost) {
  options_.steps = 3;
  Notification second_step;
  learner_.on_train = [&](int64_t step) {
    if (step == 2) second_step.Notify();
  };
  transport_->on_publish = [&](int64_t version) {
    if (version == 1) {
      EXPECT_TRUE(second_step.WaitFor(absl::Minutes(1)));
    }
  };
  Produce(6);
  ASSERT_TRUE(StartAndRun().ok());
  // Version 2 is staged, which CommitStep needs, when version 1 is with the engines.
  EXPECT_LT(Place("train 2"), Place("publish 1"));
  EXPECT_LT(Place("publish 1"), Place("CommitStep 2"));
}

TEST_F(TrainerLoopTest, LogsTheSamplesOfAStepWhoseLivesAreLogged) {
  const LogLines log;
  options_.steps = 1;
  options_.trace_ratio = 1;
  Produce(2);
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_THAT(log.With("event=sample_trained"), testing::SizeIs(4));
  EXPECT_THAT(
      log.With(TraceWords("job/1/0/1")),
      ElementsAre("event=sample_trained " + TraceWords("job/1/0/1") + " step=1 min_version=0"));
}

TEST_F(TrainerLoopTest, TrainsEveryStepAndSavesTheLast) {
  Produce(8);
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_EQ(loop().committed(), 4);
  EXPECT_THAT(Only({"OnStep"}), ElementsAre("OnStep 1", "OnStep 2", "OnStep 3", "OnStep 4"));
  EXPECT_THAT(Saved(), ElementsAre(4));
  EXPECT_EQ(store().Stats()->committed_version, 4);
}

TEST_F(TrainerLoopTest, ACheckpointHoldsWhatWasCommitted) {
  Produce(8);
  ASSERT_TRUE(StartAndRun().ok());
  const auto found = OpenCheckpoint(options_.checkpoint_root + "/step-4");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->state.job, "job");
  EXPECT_EQ(found->state.policy, (PolicyVersion{0, 4}));
  EXPECT_EQ(found->state.epoch, 1);
  EXPECT_EQ(found->state.seed, 9U);
  EXPECT_EQ(found->state.cursor.low_water, 8);
  EXPECT_EQ(*ReadFile(found->path + "/config.json", 10), "{}");
  const auto model = ReadFile(found->path + "/model.safetensors", 1 << 20);
  EXPECT_THAT(*model, HasSubstr("weights of step 4"));
  int64_t durable = 0;
  const auto ledger = store().ReadLedger(0, 1000);
  for (const LedgerRow& row : *ledger) {
    if (row.event != LedgerEvent::kDurable || row.version != 4) continue;
    EXPECT_EQ(row.digest, found->state.digest);
    EXPECT_EQ(row.checkpoint_sha256, found->manifest_sha256);
    ++durable;
  }
  EXPECT_EQ(durable, 1);
}

TEST_F(TrainerLoopTest, PublishesEveryFewStepsAndTheLast) {
  options_.publish_every = 3;
  Produce(8);
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_THAT(Only({"publish"}), ElementsAre("publish 0", "publish 3", "publish 4"));
}

TEST_F(TrainerLoopTest, SavesEveryFewStepsAndKeepsTheNewest) {
  options_.checkpoint_every = 1;
  options_.retention = {.last = 2, .pinned = {0}};
  Produce(8);
  ASSERT_TRUE(StartAndRun(/*save_loaded=*/true).ok());
  EXPECT_THAT(Only({"MarkDurable"}), ElementsAre("MarkDurable 0", "MarkDurable 1", "MarkDurable 2",
                                                 "MarkDurable 3", "MarkDurable 4"));
  EXPECT_THAT(Saved(), ElementsAre(0, 3, 4));
}

TEST_F(TrainerLoopTest, ALearnerErrorStopsWithoutACommit) {
  Produce(8);
  learner_.fails_at = 3;
  const absl::Status status = StartAndRun();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("loss of step 3 is not finite"));
  EXPECT_THAT(Only({"CommitStep"}), ElementsAre("CommitStep 1", "CommitStep 2"));
  EXPECT_THAT(Only({"publish"}), Not(Contains("publish 3")));
  EXPECT_EQ(loop().committed(), 2);
  // The last committed step is saved.
  EXPECT_THAT(Saved(), ElementsAre(2));
  EXPECT_THAT(*ReadFile(options_.checkpoint_root + "/step-2/model.safetensors", 1 << 20),
              HasSubstr("weights of step 2"));
}

TEST_F(TrainerLoopTest, NothingIsPublishedWhenTheLedgerCannotBeWritten) {
  Produce(8);
  ASSERT_TRUE(loop().Start(false).ok());
  observer_.committed_status = absl::ResourceExhaustedError("the disk is full");
  EXPECT_EQ(loop().Run(stop_.get_token()).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Only({"publish"}), ElementsAre("publish 0"));
  EXPECT_EQ(CountOf("point commit"), 0);
}

TEST_F(TrainerLoopTest, StopSavesWhatWasCommitted) {
  Produce(8);
  observer_.on_step = [&](int64_t step) {
    if (step == 2) stop_.request_stop();
  };
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_EQ(loop().committed(), 2);
  EXPECT_EQ(CountOf("train 3"), 0);
  EXPECT_THAT(Saved(), ElementsAre(2));
  EXPECT_EQ(CountOf("MarkDurable 2"), 1);
}

TEST_F(TrainerLoopTest, StopEndsAStepThatWaitsForRanksAndSavesWhatWasCommitted) {
  Produce(8);
  learner_.waits_for_ranks = true;
  learner_.on_train = [&](int64_t step) {
    if (step == 3) stop_.request_stop();
  };
  EXPECT_TRUE(StartAndRun().ok());
  EXPECT_EQ(loop().committed(), 2);
  EXPECT_THAT(Saved(), ElementsAre(2));
}

TEST_F(TrainerLoopTest, StopEndsAWaitForSamples) {
  options_.wait_slice = absl::Seconds(60);
  Notification waiting;
  Notification done;
  store().on_wait = [&] { waiting.Notify(); };
  ASSERT_TRUE(loop().Start(false).ok());
  absl::Status status = absl::UnknownError("still running");
  std::jthread runner([&] {
    status = loop().Run(stop_.get_token());
    done.Notify();
  });
  ASSERT_TRUE(waiting.WaitFor(absl::Seconds(10)));
  stop_.request_stop();
  ASSERT_TRUE(done.WaitFor(absl::Seconds(10)));
  runner.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(Saved(), IsEmpty());
}

TEST_F(TrainerLoopTest, SamplesThatComeLateAreTrained) {
  int waits = 0;
  store().on_wait = [&] {
    if (++waits == 5) Produce(8);
    ASSERT_LT(waits, 1000);
  };
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_EQ(loop().committed(), 4);
}

TEST_F(TrainerLoopTest, ALongWaitNamesWhatItWaitsForUntilItEnds) {
  options_.steps = 1;
  options_.stall_warning = absl::Seconds(10);
  int waits = 0;
  store().on_wait = [&] {
    clock_.Advance(absl::Seconds(3));
    if (++waits == 10) Produce(2);
  };
  bool stepped = false;
  observer_.on_step = [&](int64_t) {
    stepped = true;
    EXPECT_EQ(observer_.rests, 1);
  };
  ASSERT_TRUE(StartAndRun().ok());
  // 30 s in slices of 3 s: warns at 12 and 24 s.
  ASSERT_THAT(observer_.stalls, SizeIs(2));
  EXPECT_EQ(observer_.stalls[0].second, absl::Seconds(12));
  EXPECT_EQ(observer_.stalls[1].second, absl::Seconds(24));
  const std::string& reason = observer_.stalls[0].first;
  EXPECT_THAT(reason, StartsWith("step 1 needs 2 more groups"));
  EXPECT_EQ(reason.find("step 1 needs", 1), std::string::npos) << reason;  // told once
  EXPECT_TRUE(stepped);
}

TEST_F(TrainerLoopTest, ALongWaitForACheckpointIsReported) {
  options_.steps = 1;
  options_.stall_warning = absl::Milliseconds(1);
  Produce(2);
  Notification reported;
  observer_.on_stalled = [&] { reported.Notify(); };
  points_.on_reach = [&](std::string_view point) {
    if (point != "checkpoint_write") return;
    EXPECT_TRUE(reported.WaitFor(absl::Minutes(1)));
  };
  ASSERT_TRUE(StartAndRun().ok());
  ASSERT_THAT(observer_.stalls, Not(IsEmpty()));
  EXPECT_EQ(observer_.stalls[0].first, "the checkpoint of version 1 is still being written");
}

TEST_F(TrainerLoopTest, AFailedCheckpointEndsTheRunWithItsPath) {
  options_.checkpoint_root = dir_.Write("checkpoints", "a file");
  options_.checkpoint_every = 1;
  Produce(8);
  const absl::Status status = StartAndRun();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr(options_.checkpoint_root));
  EXPECT_EQ(CountOf("MarkDurable 1"), 0);
  EXPECT_LE(loop().committed(), 2);
}

TEST_F(TrainerLoopTest, APausedJobEndsTheRun) {
  store_options_.filter.zero_variance = true;
  store_options_.max_filtered_in_a_row = 2;
  Produce(4, 0, /*same=*/true);
  const absl::Status status = StartAndRun();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("paused"));
  EXPECT_EQ(loop().committed(), 0);
}

TEST_F(TrainerLoopTest, AFencedTrainerStopsAndPublishesNothing) {
  Produce(8);
  observer_.on_step = [&](int64_t step) {
    if (step != 2) return;
    ASSERT_TRUE(store().OpenEpoch("another", {0, 2}).ok());
  };
  EXPECT_EQ(StartAndRun().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(loop().committed(), 2);
  EXPECT_THAT(Only({"publish"}), ElementsAre("publish 0", "publish 1", "publish 2"));
}

// The trainer is stopped after committing step 2; its successor redoes and saves the step.
TEST_F(TrainerLoopTest, AFencedTrainersCheckpointDoesNotReplaceItsSuccessors) {
  Produce(4);
  options_.steps = 2;
  observer_.on_step = [&](int64_t step) {
    if (step != 2) return;
    JournalObserver observer(journal_);
    TrainerLoop successor(store(), learner_, publisher_, observer, clock_, points_, options_);
    ASSERT_TRUE(successor.Start(false).ok());
    ASSERT_TRUE(successor.Run(stop_.get_token()).ok());
  };
  const absl::Status status = StartAndRun();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("step-2: a trainer of writer epoch 2"));
  const auto saved = OpenCheckpoint(options_.checkpoint_root + "/step-2");
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->state.epoch, 2);
}

// A store restored from a backup reuses epochs that checkpoints already have.
TEST_F(TrainerLoopTest, WhatLaterEpochsOfARestoredStoreLeftIsReplaced) {
  CheckpointContents left;
  left.state.job = "job";
  left.state.policy = {0, 2};
  left.state.epoch = left.writer_epoch = 9;
  left.learner = *learner_.Snapshot();
  left.files = options_.checkpoint_files;
  ASSERT_TRUE(WriteCheckpoint(
                  options_.checkpoint_root, left, [] { return absl::OkStatus(); }, points_)
                  .ok());
  options_.steps = 2;
  Produce(4);
  ASSERT_TRUE(StartAndRun().ok());
  const auto saved = OpenCheckpoint(options_.checkpoint_root + "/step-2");
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->state.epoch, 1);
  EXPECT_EQ(saved->writer_epoch, 10);
}

// Whatever happens after the commit is not in it.
TEST_F(TrainerLoopTest, ACheckpointHasTheStateOfItsVersion) {
  options_.steps = 2;
  options_.checkpoint_every = 1;
  int64_t reported = 0;
  observer_.on_step = [&](int64_t step) { reported = step; };
  options_.state_file = [&] {
    return StateFile("state.bin", StrCat(store().Stats()->committed_version, " ", reported));
  };
  Produce(4);
  ASSERT_TRUE(StartAndRun().ok());
  for (const int64_t version : {1, 2}) {
    const std::string path = StrCat(options_.checkpoint_root, "/step-", version);
    EXPECT_EQ(*ReadFile(path + "/state.bin", 100), StrCat(version, " ", version - 1));
    const auto manifest = ReadCheckpointManifest(path);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_EQ(std::count_if(manifest->files.begin(), manifest->files.end(),
                            [](const auto& file) { return file.name == "state.bin"; }),
              1);
  }
}

TEST_F(TrainerLoopTest, WeightsOfAStepThatWasNotCommittedAreNotSaved) {
  Produce(8);
  learner_.on_train = [&](int64_t step) {
    if (step != 2) return;
    ASSERT_TRUE(store().OpenEpoch("another", {0, 1}).ok());
  };
  EXPECT_EQ(StartAndRun().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(loop().committed(), 1);
  EXPECT_THAT(Saved(), IsEmpty());
}

TEST_F(TrainerLoopTest, CommittedStepsAreRedoneInOrderAndOnlyTheLastIsPublished) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  options_.steps = 3;
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_EQ(loop().committed(), 3);
  EXPECT_THAT(Only({"train", "OnStep"}),
              ElementsAre("train 1", "OnStep 1", "train 2", "OnStep 2", "train 3", "OnStep 3"));
  EXPECT_THAT(Only({"publish"}), ElementsAre("publish 2", "publish 3"));
  const auto stats = store().Stats();
  EXPECT_EQ(stats->committed_version, 3);
  EXPECT_EQ(stats->trained_samples, 3 * 4) << "a redone sample counted twice";
}

TEST_F(TrainerLoopTest, ARedoThatGivesOtherWeightsGoesOnInALineageOfItsOwn) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "other weights", "other weights too"});
  options_.steps = 4;
  std::vector<PolicyVersion> reported;
  observer_.on_step = [&](int64_t) { reported.push_back(publisher_.staged().manifest.policy); };
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_EQ(loop().committed(), 4);
  EXPECT_THAT(Only({"train"}), ElementsAre("train 1", "train 2", "train 3", "train 4"));
  EXPECT_THAT(published_, ElementsAre(PolicyVersion{1, 3}, PolicyVersion{1, 4}));
  EXPECT_THAT(reported, ElementsAre(PolicyVersion{0, 1}, PolicyVersion{1, 2}, PolicyVersion{1, 3},
                                    PolicyVersion{1, 4}));
  EXPECT_EQ(store().Stats()->trained_samples, 4 * 4) << "a redone sample counted twice";
  const auto found = FindAllCheckpoints(options_.checkpoint_root, "job");
  ASSERT_TRUE(found.ok() && !found->complete.empty()) << found.status();
  EXPECT_EQ(found->complete.front().state.policy, (PolicyVersion{1, 4}));
}

TEST_F(TrainerLoopTest, ACheckpointFromBeforeTheOtherWeightsLeadsBackToThem) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "other weights"});
  ASSERT_TRUE(loop().Start(false).ok());
  publisher_.AwaitPublished();
  EXPECT_THAT(published_, ElementsAre(PolicyVersion{1, 2}));
  TrainerLoop next(store(), learner_, publisher_, observer_, clock_, points_, options_);
  ASSERT_TRUE(next.Start(false).ok());
  publisher_.AwaitPublished();
  EXPECT_THAT(published_, ElementsAre(PolicyVersion{1, 2}, PolicyVersion{1, 2}));
}

TEST_F(TrainerLoopTest, AVersionOfAnotherHistoryIsNotTrainedOn) {
  Produce(8);
  CommitAsAnother({"weights of step 1"});
  const auto opened = store().OpenEpoch("reader", {0, 1});
  ASSERT_TRUE(opened.ok());
  options_.loaded = {0, 1};
  options_.loaded_digest = "of other samples";
  EXPECT_EQ(loop().Start(false).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(loop().epoch(), 0);
  EXPECT_THAT(Only({"train", "publish"}), IsEmpty());
  options_.loaded_digest = opened->digest;
  ASSERT_TRUE(learner_.TrainStep(1, {}).ok());
  TrainerLoop good(store(), learner_, publisher_, observer_, clock_, points_, options_);
  EXPECT_TRUE(good.Start(false).ok());
  EXPECT_GT(good.epoch(), 0);
}

TEST_F(TrainerLoopTest, StopEndsARedoBetweenTwoSteps) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  observer_.on_step = [&](int64_t) { stop_.request_stop(); };
  ASSERT_TRUE(loop().Start(false, stop_.get_token()).ok());
  EXPECT_THAT(Only({"train"}), ElementsAre("train 1"));
  EXPECT_THAT(Only({"publish"}), IsEmpty());
}

TEST_F(TrainerLoopTest, APausedLoopClaimsNoBatch) {
  Produce(8);
  loop().SetPaused(true);
  int waits = 0;
  store().on_wait = [&] {
    EXPECT_EQ(CountOf("train 1"), 0);
    if (++waits == 3) loop().SetPaused(false);
  };
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_EQ(waits, 3);
  EXPECT_EQ(loop().committed(), 4);
}

TEST_F(TrainerLoopTest, ARequestedCheckpointIsMadeAfterTheNextStep) {
  Produce(8);
  observer_.on_step = [&](int64_t step) {
    if (step == 1) loop().RequestCheckpoint();
  };
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_THAT(Only({"MarkDurable"}), ElementsAre("MarkDurable 1", "MarkDurable 4"));
}

TEST_F(TrainerLoopTest, AFullStoreForcesACheckpointOnceAVersion) {
  // Capacity for 8 groups, i.e. 4 steps without a durable checkpoint.
  store_options_.capacity_groups = 8;
  options_.steps = 5;
  Produce(8);
  int waits = 0;
  store().on_wait = [&] {
    EXPECT_EQ(CountOf("MarkDurable 4"), 1) << "waits for samples that nobody may generate";
    if (++waits == 20) stop_.request_stop();
  };
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_EQ(loop().committed(), 4);
  EXPECT_EQ(waits, 20);
  EXPECT_EQ(CountOf("point checkpoint_write"), 1) << "the same version is written again and again";
  EXPECT_THAT(Saved(), ElementsAre(4));
}

TEST_F(TrainerLoopTest, AFullStoreOfUnfinishedGroupsIsWaitedFor) {
  store_options_.capacity_groups = 8;
  std::vector<Prompt> prompts(8);
  for (int64_t i = 0; i < 8; ++i) prompts[static_cast<size_t>(i)] = {i, 0, {1}, {}};
  ASSERT_TRUE(store().PutPrompts(prompts).ok());
  ASSERT_EQ(store().LeasePrompts({"w", "", {0, 0}, 8})->leases.size(), 8U);
  int waits = 0;
  store().on_wait = [&] {
    if (++waits == 20) stop_.request_stop();
  };
  ASSERT_TRUE(StartAndRun().ok());
  EXPECT_EQ(waits, 20);
  EXPECT_EQ(CountOf("point checkpoint_write"), 0);
}

}  // namespace
}  // namespace freshet
