#include "local/resume_point.h"

#include <fstream>

#include "base/file.h"
#include "base/str_cat.h"
#include "datastore/ledger.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runlog/step_metrics.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class ResumePointTest : public testing::Test {
 protected:
  ResumePointTest() {
    options_.job = "job";
    options_.group_size = 4;
    options_.staleness.max = 2;
    options_.staleness.groups_per_step = 8;
    auto folder = RunFolder::Create(scratch_.File("run"), "name: job\n");
    EXPECT_TRUE(folder.ok()) << folder.status();
    folder_ = std::make_unique<RunFolder>(*std::move(folder));
  }

  LedgerRow OpenRow() const {
    LedgerRow row;
    row.seq = 1;
    row.event = LedgerEvent::kOpen;
    row.job = "job";
    row.bound = 2;
    row.disposition = "wait";
    row.groups_per_step = 8;
    row.group_size = 4;
    return row;
  }
  static LedgerRow SampleRow(int64_t seq, int64_t epoch, int64_t lineage, int32_t attempt) {
    LedgerRow row;
    row.seq = seq;
    row.event = LedgerEvent::kTrained;
    row.epoch = epoch;
    row.lineage = lineage;
    row.step = 1;
    row.uid = StrCat("job/0/", attempt, "/0");
    row.attempt = attempt;
    row.loss_tokens = 1;
    row.spans = {{{lineage, 0}, 0, 1}};
    return row;
  }
  void Append(const std::string& name, const std::string& text) {
    std::ofstream(folder_->File(name), std::ios::app | std::ios::binary) << text;
  }
  void AppendLedger(const LedgerRow& row) { Append("ledger.jsonl", LedgerRowToJson(row) + "\n"); }
  void SaveCheckpoint(PolicyVersion policy, const std::string& job = "job") {
    CheckpointContents contents;
    contents.state.job = job;
    contents.state.policy = policy;
    contents.state.digest = "abc";
    contents.state.cursor = {16, {20, 21}};
    auto learner = std::make_shared<LearnerState>();
    learner->model = {{"w", Dtype::kF32, {1}, std::vector<std::byte>(4), {}}};
    contents.learner = learner;
    contents.files = {{"config.json", "{}"}};
    FaultPoints faults;
    const auto sha256 = WriteCheckpoint(
        folder_->File("checkpoints"), contents, [] { return absl::OkStatus(); }, faults);
    ASSERT_TRUE(sha256.ok()) << sha256.status();
    sha256_ = *sha256;
  }
  ResumePoint Find() {
    auto point = FindResumePoint(*folder_, options_);
    EXPECT_TRUE(point.ok()) << point.status();
    return *std::move(point);
  }
  std::string Error() { return Message(FindResumePoint(*folder_, options_).status()); }

  StoreOptions options_;
  const ScratchFolder scratch_;
  std::unique_ptr<RunFolder> folder_;
  std::string sha256_;
};

TEST_F(ResumePointTest, AFreshFolderStartsAtTheBeginning) {
  const ResumePoint point = Find();
  EXPECT_FALSE(point.origin.resumed);
  EXPECT_EQ(point.origin.policy, (PolicyVersion{0, 0}));
  EXPECT_EQ(point.origin.ledger_seq, 0);
  EXPECT_EQ(point.first_attempt, 0);
  EXPECT_FALSE(point.checkpoint.has_value());
  EXPECT_EQ(point.wall_seconds, 0);
}

TEST_F(ResumePointTest, ATornFirstRowIsNoRow) {
  Append("ledger.jsonl", LedgerRowToJson(OpenRow()));  // no newline
  EXPECT_FALSE(Find().origin.resumed);
}

TEST_F(ResumePointTest, WithoutACheckpointItStartsAgainInANewLineage) {
  AppendLedger(OpenRow());
  const ResumePoint point = Find();
  EXPECT_TRUE(point.origin.resumed);
  EXPECT_EQ(point.origin.policy, (PolicyVersion{1, 0}));
  EXPECT_EQ(point.origin.ledger_seq, 1);
  EXPECT_EQ(point.origin.digest, InitialDigest());
  EXPECT_EQ(point.parent_lineage, 0);
  EXPECT_FALSE(point.checkpoint.has_value());
}

TEST_F(ResumePointTest, NumbersGoOnWhereTheLedgerStands) {
  AppendLedger(OpenRow());
  AppendLedger(SampleRow(2, 1, 0, 0));
  AppendLedger(SampleRow(3, 3, 2, 7));
  AppendLedger(SampleRow(4, 2, 1, 5));
  const ResumePoint point = Find();
  EXPECT_EQ(point.origin.ledger_seq, 4);
  EXPECT_EQ(point.origin.epoch, 3);
  EXPECT_EQ(point.origin.policy.lineage, 3);
  EXPECT_EQ(point.parent_lineage, 2);
  EXPECT_EQ(point.first_attempt, 9) << "above 7, and above a requeue that was not exported";
}

TEST_F(ResumePointTest, ACheckpointIsWhereTheForkBegins) {
  AppendLedger(OpenRow());
  SaveCheckpoint({0, 6});
  const ResumePoint point = Find();
  ASSERT_TRUE(point.checkpoint.has_value());
  EXPECT_EQ(point.checkpoint->manifest_sha256, sha256_);
  EXPECT_EQ(point.origin.policy, (PolicyVersion{1, 6}));
  EXPECT_EQ(point.origin.digest, "abc");
  EXPECT_EQ(point.origin.cursor.low_water, 16);
  EXPECT_THAT(point.origin.cursor.above, ElementsAre(20, 21));
  EXPECT_EQ(point.parent_lineage, 0);
}

TEST_F(ResumePointTest, ADamagedCheckpointIsPassedOverAndNamed) {
  AppendLedger(OpenRow());
  SaveCheckpoint({0, 2});
  SaveCheckpoint({0, 4});
  Append("checkpoints/step-4/config.json", "x");
  const ResumePoint point = Find();
  ASSERT_TRUE(point.checkpoint.has_value());
  EXPECT_EQ(point.checkpoint->state.policy, (PolicyVersion{0, 2}));
  EXPECT_THAT(point.damaged, ElementsAre(folder_->File("checkpoints/step-4")));
}

// As written by versions that did not have the field.
TEST_F(ResumePointTest, ACheckpointWithoutAWriterEpochIsWhereTheForkBegins) {
  AppendLedger(OpenRow());
  SaveCheckpoint({0, 2});
  const std::string path = folder_->File("checkpoints/step-2/manifest.json");
  std::string manifest = *ReadFile(path, 1 << 20);
  const std::string key = "\"writer_epoch\": 0,";
  ASSERT_NE(manifest.find(key), std::string::npos);
  manifest.erase(manifest.find(key), key.size());
  std::ofstream(path, std::ios::binary) << manifest;
  const ResumePoint point = Find();
  ASSERT_TRUE(point.checkpoint.has_value());
  EXPECT_EQ(point.origin.policy, (PolicyVersion{1, 2}));
}

TEST_F(ResumePointTest, TheParentIsTheLineageOfTheCheckpoint) {
  AppendLedger(OpenRow());
  AppendLedger(SampleRow(2, 4, 3, 0));  // lineages 2 and 3 have no checkpoint
  SaveCheckpoint({1, 6});
  const ResumePoint point = Find();
  EXPECT_EQ(point.origin.policy, (PolicyVersion{4, 6}));
  EXPECT_EQ(point.parent_lineage, 1);
}

TEST_F(ResumePointTest, WallSecondsOfEarlierProcessesCount) {
  AppendLedger(OpenRow());
  StepMetrics step;
  step.step = 1;
  step.wall_seconds = 12.5;
  EvalMetrics eval;
  eval.eval_name = "heldout";
  eval.wall_seconds = 13.5;
  Append("metrics.jsonl", StrCat(ToJson(eval), "\n", ToJson(step), "\n{\"step\": 2, \"wall"));
  EXPECT_EQ(Find().wall_seconds, 13.5);
}

TEST_F(ResumePointTest, RewardsByTaskAreThoseOfTheSurvivingSteps) {
  AppendLedger(OpenRow());
  SaveCheckpoint({1, 3});
  const auto add = [this](int64_t lineage, int64_t number, double reward) {
    StepMetrics step;
    step.lineage = lineage;
    step.step = number;
    step.task_rewards["a"] = reward;
    step.task_samples["a"] = 4;
    Append("metrics.jsonl", ToJson(step) + "\n");
  };
  for (int64_t step = 1; step <= 4; ++step) add(0, step, 0.25);
  for (int64_t step = 3; step <= 5; ++step) add(1, step, 0.5);
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (const ResumePoint::TaskRewards& step : Find().task_rewards) {
    steps.emplace_back(step.lineage, step.step);
    EXPECT_EQ(step.rewards.at("a"), step.lineage == 0 ? 0.25 : 0.5);
  }
  EXPECT_THAT(steps, ElementsAre(std::pair(0, 1), std::pair(0, 2), std::pair(1, 3)));
}

TEST_F(ResumePointTest, SetsWithAnEvaluationOfTheCheckpointAreDone) {
  AppendLedger(OpenRow());
  SaveCheckpoint({0, 6});
  for (const auto& [name, version] : {std::pair{"early", 4}, {"done", 6}, {"beyond", 8}}) {
    EvalMetrics eval;
    eval.eval_name = name;
    eval.policy_version = version;
    Append("metrics.jsonl", ToJson(eval) + "\n");
  }
  EXPECT_THAT(Find().evaluated, ElementsAre("done"));
}

TEST_F(ResumePointTest, ATornLastRowIsIgnored) {
  AppendLedger(OpenRow());
  AppendLedger(SampleRow(2, 1, 0, 0));
  Append("ledger.jsonl", LedgerRowToJson(SampleRow(3, 1, 5, 0)).substr(0, 40));
  EXPECT_EQ(Find().origin.ledger_seq, 2);
}

TEST_F(ResumePointTest, AMalformedRowIsNamed) {
  AppendLedger(OpenRow());
  Append("ledger.jsonl", "nonsense\n");
  EXPECT_THAT(Error(), HasSubstr(StrCat(folder_->File("ledger.jsonl"), ":2: ")));
}

TEST_F(ResumePointTest, AFolderOfAnotherJobIsRefused) {
  LedgerRow open = OpenRow();
  open.job = "other";
  AppendLedger(open);
  const auto point = FindResumePoint(*folder_, options_);
  EXPECT_EQ(point.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Error(),
              AllOf(HasSubstr("ledger.jsonl"), HasSubstr("\"other\""), HasSubstr("\"job\"")));
}

TEST_F(ResumePointTest, ACheckpointOfAnotherJobIsRefused) {
  AppendLedger(OpenRow());
  SaveCheckpoint({0, 6}, "other");
  EXPECT_THAT(Error(), AllOf(HasSubstr("step-6"), HasSubstr("\"other\"")));
}

TEST_F(ResumePointTest, WhatTheLedgerWasOpenedWithCannotChange) {
  AppendLedger(OpenRow());
  EXPECT_EQ(Error(), "");
  const StoreOptions kept = options_;
  options_.staleness.max = 1;
  EXPECT_THAT(Error(), HasSubstr("staleness.max 2, the job says 1"));
  options_ = kept;
  options_.replay = ReplayOptions{4, 1.0, 8, 1};
  EXPECT_THAT(Error(), HasSubstr("replay.max_age 0, the job says 4"));
  options_ = kept;
  options_.adaptive = AdaptiveOptions{2, 1.0, 0};
  EXPECT_THAT(Error(), HasSubstr("adaptive_rollouts.min_group_size 0, the job says 2"));
  options_ = kept;
  options_.staleness.disposition = Disposition::kMask;
  EXPECT_THAT(Error(), HasSubstr("staleness.policy wait, the job says mask"));
  options_ = kept;
  options_.staleness.groups_per_step = 9;
  EXPECT_THAT(Error(), HasSubstr("prompts_per_step 8, the job says 9"));
  options_ = kept;
  options_.group_size = 2;
  EXPECT_THAT(Error(), HasSubstr("group_size 4, the job says 2"));
}

}  // namespace
}  // namespace freshet
