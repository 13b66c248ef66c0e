#include "trainer/checkpoint/checkpoint_folder.h"

#include <filesystem>

#include "base/digest.h"
#include "base/file.h"
#include "base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/checkpoint/checkpoint_fixture.h"
#include "trainer/checkpoint/checkpoint_score.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

using CheckpointFolderTest = CheckpointTest;

TEST_F(CheckpointFolderTest, FindsNothingWhereNothingIs) {
  EXPECT_FALSE(Newest().has_value());
  const auto missing = FindAllCheckpoints(dir_.File("missing"), "job");
  ASSERT_TRUE(missing.ok()) << missing.status();
  EXPECT_TRUE(missing->complete.empty());
}

TEST_F(CheckpointFolderTest, TheNewestIsByLineageThenVersion) {
  for (const int64_t step : {9, 10, 2}) ASSERT_TRUE(Write(Contents(step)).ok());
  EXPECT_EQ(Newest()->state.policy, (PolicyVersion{0, 10}));
  ASSERT_TRUE(Write(Contents(3, 1)).ok());
  EXPECT_EQ(Newest()->state.policy, (PolicyVersion{1, 3}));
}

TEST_F(CheckpointFolderTest, IgnoresNamesThatAreNotSteps) {
  ASSERT_TRUE(Write(Contents(3)).ok());
  for (const char* name :
       {"step-", "step-x", "step--9", "step-9x", "step-9.bak", "other", "step-8 "}) {
    fs::copy(Step(3), dir_.File(name), fs::copy_options::recursive);
  }
  dir_.Write("step-12", "a file");
  EXPECT_EQ(Newest()->path, Step(3));
}

TEST_F(CheckpointFolderTest, RemovesTemporaryDirectoriesOfAKilledProcess) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  for (const char* name : {".step-9.tmp", ".step-9.epoch-3.tmp", ".step-9.epoch-5.tmp"}) {
    fs::copy(Step(1), dir_.File(name), fs::copy_options::recursive);
  }
  dir_.Write("unrelated.tmp", "stays");
  EXPECT_EQ(Newest()->path, Step(1));
  ASSERT_TRUE(TidyCheckpoints(root(), /*writer_epoch=*/4, {}).ok());
  // The temporary folder of a newer trainer is still being written.
  EXPECT_THAT(Names(), UnorderedElementsAre("step-1", ".step-9.epoch-5.tmp", "unrelated.tmp"));
}

TEST_F(CheckpointFolderTest, RefusesAFolderOfAnotherJob) {
  ASSERT_TRUE(Write(Contents(1)).ok());
  ASSERT_TRUE(Write(Contents(2, 0, "other")).ok());
  const auto found = FindAllCheckpoints(root(), "job");
  EXPECT_EQ(found.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(found.status()), HasSubstr("step-2"));
  EXPECT_THAT(Message(found.status()), HasSubstr("\"other\""));
}

TEST_F(CheckpointFolderTest, PruneKeepsTheNewestAndTheReference) {
  for (const int64_t step : {0, 2, 4, 6, 10}) ASSERT_TRUE(Write(Contents(step)).ok());
  ASSERT_TRUE(Prune(10, 5).ok());
  EXPECT_EQ(Names().size(), 5U);
  ASSERT_TRUE(Prune(10, 2, {0}).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-0", "step-6", "step-10"));
  ASSERT_TRUE(Prune(10, 1).ok());
  EXPECT_THAT(Names(), ElementsAre("step-10"));
}

// Damaged or replaced checkpoints must not displace those that a resume needs.
TEST_F(CheckpointFolderTest, WhatIsAboveTheVersionWrittenLastCountsForNothing) {
  for (const int64_t step : {2, 4, 6, 8}) ASSERT_TRUE(Write(Contents(step)).ok());
  ASSERT_TRUE(Prune(4, 1).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-4", "step-6", "step-8"));
}

TEST_F(CheckpointFolderTest, DamagedOnesDoNotCountAsKeptAndGo) {
  for (const int64_t step : {2, 4, 6, 8, 10, 12}) ASSERT_TRUE(Write(Contents(step)).ok());
  fs::remove(Step(4) + "/manifest.json");
  fs::remove(Step(6) + "/optimizer.safetensors");
  fs::resize_file(Step(8) + "/model.safetensors", 1);
  fs::resize_file(Step(12) + "/model.safetensors", 1);
  ASSERT_TRUE(Prune(10, 2).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-2", "step-10", "step-12"));
}

TEST_F(CheckpointFolderTest, ADamagedReferenceStays) {
  for (const int64_t step : {0, 2}) ASSERT_TRUE(Write(Contents(step)).ok());
  fs::remove(Step(0) + "/config.json");
  ASSERT_TRUE(Prune(2, 2, {0}).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-0", "step-2"));
}

TEST_F(CheckpointFolderTest, PruneKeepsTheBestScores) {
  for (const int64_t step : {2, 4, 6, 8}) ASSERT_TRUE(Write(Contents(step)).ok());
  for (const auto& [step, accuracy] : {std::pair{2, 0.5}, {4, 0.75}, {6, 0.25}, {8, 0.5}}) {
    EXPECT_TRUE(RecordScore(root(), {{0, step + 1}, step, "heldout", accuracy}).ok());
    EXPECT_TRUE(RecordScore(root(), {{0, step + 2}, step, "heldout", 0.9}).ok());
    EXPECT_EQ(ReadScore(Step(step)), accuracy) << "of the nearer version";
  }
  EXPECT_TRUE(OpenCheckpoint(Step(4)).ok());
  ASSERT_TRUE(PruneCheckpoints(root(), 1, 8, {.last = 1, .best = 1}).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-4", "step-8"));
}

TEST_F(CheckpointFolderTest, OnlyCheckpointsOfTheEvaluatedHistoryGetAScore) {
  ASSERT_TRUE(Write(Contents(2, /*lineage=*/3)).ok());
  EXPECT_TRUE(absl::IsNotFound(RecordScore(root(), {{2, 2}, 2, "heldout", 0.5})))
      << "of the one it replaced";
  EXPECT_TRUE(absl::IsNotFound(RecordScore(root(), {{3, 4}, 4, "heldout", 0.5})))
      << "not written yet";
  EXPECT_FALSE(ReadScore(Step(2)).has_value());
  EXPECT_TRUE(RecordScore(root(), {{4, 3}, 2, "heldout", 0.5}).ok());
  for (const char* text : {"", "[]", "{\"eval_accuracy\": \"x\"}", "{\"eval_accuracy\": 1e999}"}) {
    ASSERT_TRUE(WriteFileAtomically(Step(2) + "/evaluation.json", text).ok());
    EXPECT_FALSE(ReadScore(Step(2)).has_value()) << text;
  }
}

TEST_F(CheckpointFolderTest, OnlyTheNewestAreVerified) {
  for (int64_t step = 1; step <= 6; ++step) ASSERT_TRUE(Write(Contents(step)).ok());
  const auto found = FindAllCheckpoints(root(), "job");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->complete.size(), 4U);
  EXPECT_EQ(found->complete.front().state.policy.version, 6);
  EXPECT_THAT(found->older, ElementsAre(Step(2), Step(1)));
}

// A manifest that exists but cannot be read may become readable again.
TEST_F(CheckpointFolderTest, OneThatCannotBeReadNowIsNeitherDamagedNorDeleted) {
  for (const int64_t step : {2, 4, 6}) ASSERT_TRUE(Write(Contents(step)).ok());
  fs::remove(Step(4) + "/manifest.json");
  fs::create_symlink("manifest.json", Step(4) + "/manifest.json");  // ELOOP
  EXPECT_EQ(OpenCheckpoint(Step(4)).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(Prune(6, 2).ok());
  EXPECT_EQ(Names().size(), 3U);
  EXPECT_THAT(FindAllCheckpoints(root(), "job")->damaged, IsEmpty());
}

TEST_F(CheckpointFolderTest, ListingReadsManifestsAlone) {
  for (const int64_t step : {2, 4, 6}) ASSERT_TRUE(Write(Contents(step)).ok());
  std::string text = *ReadFile(Step(4) + "/model.safetensors", 1 << 20);
  text.back() ^= 1;  // detected by hashing only
  ASSERT_TRUE(WriteFileAtomically(Step(4) + "/model.safetensors", text).ok());
  fs::remove(Step(6) + "/config.json");
  const auto listed = ListCheckpoints(root());
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[0].path, Step(4));
  EXPECT_EQ(listed[1].path, Step(2));
  EXPECT_EQ(listed[1].manifest.policy, (PolicyVersion{0, 2}));
  EXPECT_EQ(listed[1].manifest.sha256, *Sha256File(Step(2) + "/manifest.json"));
  EXPECT_THAT(FindAllCheckpoints(root(), "job")->damaged, ElementsAre(Step(6), Step(4)));
}

// A fenced trainer that prunes renames a checkpoint for a moment, see Writer::Claim.
TEST_F(CheckpointFolderTest, OneThatIsBrieflyAwayIsNotDamaged) {
  for (const int64_t step : {2, 4, 6}) ASSERT_TRUE(Write(Contents(step)).ok());
  fs::resize_file(Step(6) + "/model.safetensors", 1);
  int lines = 0;
  SetLogSink([&](LogSeverity, absl::Time, std::string_view) {
    // The names have been read, and step 6 has been checked.
    if (++lines == 1) fs::rename(Step(4), dir_.File("away"));
  });
  const auto found = FindAllCheckpoints(root(), "job");
  SetLogSink(nullptr);
  fs::rename(dir_.File("away"), Step(4));
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(lines, 2);
  EXPECT_THAT(found->damaged, ElementsAre(Step(6)));
  ASSERT_EQ(found->complete.size(), 1U);
  EXPECT_EQ(found->complete[0].path, Step(2));
}

TEST_F(CheckpointFolderTest, OneThatIsWholeAgainIsNotSetAsideAsDamaged) {
  for (const int64_t step : {2, 4, 6}) ASSERT_TRUE(Write(Contents(step)).ok());
  fs::resize_file(Step(6) + "/model.safetensors", 1);
  ASSERT_TRUE(TidyCheckpoints(root(), 1, {Step(2)}, {Step(4), Step(6)}).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("replaced-step-2", "step-4", "replaced-step-6"));
  EXPECT_TRUE(OpenCheckpoint(Step(4)).ok());
}

TEST_F(CheckpointFolderTest, AllAreFoundTheNewestFirst) {
  for (const int64_t step : {9, 10, 2}) ASSERT_TRUE(Write(Contents(step)).ok());
  ASSERT_TRUE(Write(Contents(3, 1)).ok());
  const auto found = FindAllCheckpoints(root(), "job");
  ASSERT_TRUE(found.ok()) << found.status();
  std::vector<PolicyVersion> policies;
  for (const FoundCheckpoint& checkpoint : found->complete)
    policies.push_back(checkpoint.state.policy);
  EXPECT_THAT(policies, ElementsAre(PolicyVersion{1, 3}, PolicyVersion{0, 10}, PolicyVersion{0, 9},
                                    PolicyVersion{0, 2}));
}

TEST_F(CheckpointFolderTest, OneThatIsSetAsideIsSeenByNobodyAndGoesWhenItIsPassed) {
  for (const int64_t step : {2, 4}) ASSERT_TRUE(Write(Contents(step)).ok());
  ASSERT_TRUE(TidyCheckpoints(root(), 1, {Step(4)}).ok());
  EXPECT_EQ(Newest()->path, Step(2));
  ASSERT_TRUE(Write(Contents(4)).ok());
  ASSERT_TRUE(TidyCheckpoints(root(), 1, {Step(4), Step(7)}).ok()) << "again";
  EXPECT_THAT(Names(), UnorderedElementsAre("step-2", "replaced-step-4"));
  ASSERT_TRUE(Prune(3, 2).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("step-2", "replaced-step-4"));
  ASSERT_TRUE(Prune(4, 2).ok());
  EXPECT_THAT(Names(), ElementsAre("step-2"));
}

TEST_F(CheckpointFolderTest, PruneOfAnEmptyRootDoesNothing) {
  EXPECT_TRUE(Prune(1, 1).ok());
  EXPECT_TRUE(PruneCheckpoints(dir_.File("missing"), 1, 1, {.last = 1}).ok());
}

}  // namespace
}  // namespace freshet
