#include "trainer/service/training_work.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/str_cat.h"
#include "tests/trainer/service/training_work_fixture.h"
#include "trainer/checkpoint/checkpoint_score.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::FieldsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::SizeIs;
using Away = FailingEventLog::Away;

TEST_F(TrainingWorkTest, WritesARowPerStep) {
  Produce(8);
  RunWell();
  EXPECT_THAT(events_.Keys("{job}:events"),
              ElementsAre("step/0/1", "step/0/2", "step/0/3", "step/0/4"));
  EXPECT_THAT(events_.Keys("{job}:samples"), SizeIs(4));
  EXPECT_EQ(rows_.most_waiting, 0);
  EXPECT_TRUE(Has("step-4"));
}

TEST_F(TrainingWorkTest, RowsSayWhatTheRolloutsDidSinceTheStepBefore) {
  Produce(8);
  Generate();
  RunWell();
  EXPECT_THAT(Generation(),
              ElementsAre(Pair(1, FieldsAre(10, 1.5, 0.25)), Pair(2, FieldsAre(20, 3.0, 0.5)),
                          Pair(3, FieldsAre(30, 4.5, 0.75)), Pair(4, FieldsAre(40, 6.0, 1.0))));
}

TEST_F(TrainingWorkTest, AfterARestartTheWorkOfFormerStepsIsNotReportedAgain) {
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 1}, DigestOf({0, 1}));
  Generate();
  RunWell();
  // Step 2 is redone; what is generated meanwhile counts for step 3.
  EXPECT_THAT(Generation(),
              ElementsAre(Pair(2, FieldsAre(0, 0.0, 0.0)), Pair(3, FieldsAre(20 + 30, 7.5, 1.25)),
                          Pair(4, FieldsAre(40, 6.0, 1.0))));
}

TEST_F(TrainingWorkTest, AJobThatGeneratesWritesFilesBesideItsCheckpoints) {
  Produce(8);
  RunWell();
  EXPECT_FALSE(std::filesystem::exists(dir_.File("jobs/job/generated"))) << "it trains";
  assign_.mutable_spec()->set_kind("generate");
  assign_.mutable_spec()->mutable_trainer()->set_steps(6);
  Produce(4, /*version=*/4);
  RunWell();
  const auto text = ReadFile(dir_.File("jobs/job/generated/step-00000006.jsonl"), 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("\"completion\":\"2 tokens\""));
}

TEST_F(TrainingWorkTest, TellsOfEachCheckpoint) {
  assign_.mutable_spec()->mutable_checkpoint()->set_every_steps(2);
  Produce(8);
  RunWell();
  EXPECT_EQ(rows_.saved, 3);  // of version 0 and of steps 2 and 4
  EXPECT_EQ(rows_.not_saved, 0);
}

TEST_F(TrainingWorkTest, TellsOfACheckpointThatCannotBeWritten) {
  assign_.mutable_spec()->mutable_checkpoint()->set_every_steps(2);
  Produce(8);
  learners_.on_train = [this](int64_t step) {
    if (step != 2) return;
    while (rows_.saved < 1) std::this_thread::yield();  // it is written in parallel to the steps
    std::filesystem::remove_all(Root());
    dir_.Write("jobs/job/checkpoints", "a file");
  };
  EXPECT_FALSE(Run().ok());
  EXPECT_GE(rows_.not_saved, 1);
  EXPECT_THAT(events_.Keys("{job}:events"),
              testing::Contains(testing::StartsWith("checkpoint_failed/")));
}

TEST_F(TrainingWorkTest, CheckpointsGetTheScoresOfTheirEvaluationsAndTheBestIsKept) {
  assign_.mutable_spec()->mutable_eval()->set_name("heldout");
  assign_.mutable_spec()->mutable_eval()->set_every_steps(2);
  assign_.mutable_spec()->mutable_checkpoint()->set_every_steps(2);
  assign_.mutable_spec()->mutable_checkpoint()->set_keep_last(1);
  assign_.mutable_spec()->mutable_checkpoint()->set_keep_best(1);
  Produce(8);
  learners_.on_train = [this](int64_t step) {
    if (step != 4) return;
    for (const auto& [name, accuracy] : {std::pair{"other", 0.9}, {"heldout", 0.5}}) {
      EvalMetrics metrics;
      metrics.eval_name = name;
      metrics.eval_accuracy = accuracy;
      metrics.policy_version = 3;  // the engines had gone on
      job::v1::Event event;
      event.set_metrics_json(ToJson(metrics));
      ASSERT_TRUE(
          events_.Append("{job}:events", StrCat("eval/0/3/", name), event.SerializeAsString())
              .ok());
    }
  };
  RunWell();
  EXPECT_TRUE(Has("step-4"));
  EXPECT_EQ(ReadScore(Root() + "/step-2"), 0.5);
  EXPECT_FALSE(Has("step-0"));
}

TEST_F(TrainingWorkTest, RunsTheHookForCheckpointsAndWaitsForTheLast) {
  context_.hook.program =
      dir_.Write("hook", StrCat("#!/bin/sh\necho $FRESHET_VERSION >> ", dir_.File("out"), "\n"));
  ASSERT_EQ(::chmod(context_.hook.program.c_str(), 0700), 0);
  Produce(8);
  CommitAsAnother({"weights of step 1", "weights of step 2"});
  Save({0, 2}, DigestOf({0, 2}));
  learners_.on_train = [this](int64_t) {  // a checkpoint that still waits would be replaced
    while (!dir_.Has("out")) std::this_thread::yield();
  };
  RunWell();
  EXPECT_EQ(ReadFile(dir_.File("out"), 1 << 20).value_or(""), "2\n4\n");
  EXPECT_EQ(rows_.hooks_done, 2);
}

TEST_F(TrainingWorkTest, AHookThatFailsEndsNoJobAndIsANotice) {
  context_.hook.program = "/no/such/program";
  context_.hook.first_pause = absl::Milliseconds(1);
  Produce(8);
  RunWell();
  EXPECT_EQ(rows_.hooks_not_done, 2);
  EXPECT_THAT(events_.Keys("{job}:events"), testing::Contains("checkpoint_hook_failed/0/4"));
}

TEST_F(TrainingWorkTest, TheNoticeOfAHookThatFailsWaitsForTheDatastore) {
  context_.hook.program = "/no/such/program";
  context_.hook.first_pause = absl::Milliseconds(1);
  Produce(8);
  events_.away = Away::kYes;
  events_.back_after = 6;  // calls: one per step and one at the end
  RunWell();
  EXPECT_THAT(events_.Keys("{job}:events"), testing::Contains("checkpoint_hook_failed/0/4"));
}

TEST_F(TrainingWorkTest, RowsWaitUntilTheDatastoreIsBack) {
  Produce(8);
  learners_.on_train = [this](int64_t step) {
    if (step == 2) events_.away = Away::kYes;
    if (step == 4) events_.away = Away::kNo;
  };
  RunWell();
  EXPECT_THAT(events_.Keys("{job}:events"),
              ElementsAre("step/0/1", "step/0/2", "step/0/3", "step/0/4"));
  EXPECT_THAT(events_.Keys("{job}:samples"), SizeIs(4));
  EXPECT_EQ(rows_.most_waiting, 4);
  EXPECT_EQ(rows_.now_waiting, 0);
  EXPECT_EQ(rows_.now_dropped, 0);
}

TEST_F(TrainingWorkTest, RowsWhoseAnswerWasLostAreNotWrittenTwice) {
  Produce(8);
  learners_.on_train = [this](int64_t step) {
    events_.away = step < 4 ? Away::kAnswersLost : Away::kNo;
  };
  RunWell();
  EXPECT_THAT(events_.Keys("{job}:events"),
              ElementsAre("step/0/1", "step/0/2", "step/0/3", "step/0/4"));
  EXPECT_THAT(events_.Keys("{job}:samples"), SizeIs(4));
}

TEST_F(TrainingWorkTest, TheLastRowsAreWaitedForAfterTheLastStep) {
  Produce(8);
  events_.away = Away::kYes;
  events_.back_after = 6;  // calls: one per step and one at the end
  RunWell();
  EXPECT_THAT(events_.Keys("{job}:events"), SizeIs(4));
  EXPECT_EQ(rows_.now_waiting, 0);
}

TEST_F(TrainingWorkTest, ADatastoreThatStaysAwayEndsNoJob) {
  Produce(8);
  events_.away = Away::kYes;
  RunWell();
  EXPECT_EQ(rows_.now_waiting, 8);
  EXPECT_TRUE(Has("step-4"));
}

}  // namespace
}  // namespace freshet
