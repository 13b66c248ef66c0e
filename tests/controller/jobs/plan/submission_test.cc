#include "controller/jobs/plan/submission.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/job/job_text.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

CheckedSubmission Check(const Submission& submission,
                        const DataRoots& roots = DataRoots::Unlimited()) {
  return CheckSubmission(submission, roots);
}

std::string FirstError(const Submission& submission) {
  const CheckedSubmission checked = Check(submission);
  return checked.errors.empty() ? "" : FormatConfigError(checked.errors[0]);
}

Submission Yaml(const std::string& yaml) {
  Submission submission;
  submission.yaml = yaml;
  submission.file_name = "job.yaml";
  return submission;
}

TEST(Submission, AJobFileIsResolved) {
  const CheckedSubmission checked = Check(Yaml(MinimalJob()));
  ASSERT_TRUE(checked.errors.empty()) << FormatConfigErrors(checked.errors);
  EXPECT_EQ(checked.spec.prompts_per_step(), 64);
  EXPECT_EQ(checked.spec.pool(), "default");
}

TEST(Submission, ASpecIsResolvedToTheSame) {
  const CheckedSubmission from_yaml = Check(Yaml(MinimalJob()));
  Submission submission;
  submission.spec = &from_yaml.spec;
  const CheckedSubmission from_spec = Check(submission);
  ASSERT_TRUE(from_spec.errors.empty()) << FormatConfigErrors(from_spec.errors);
  EXPECT_EQ(from_spec.spec.SerializeAsString(), from_yaml.spec.SerializeAsString());
}

TEST(Submission, OverridesHold) {
  Submission submission = Yaml(MinimalJob());
  submission.overrides = {"trainer.steps=3"};
  EXPECT_EQ(Check(submission).spec.trainer().steps(), 3);
}

TEST(Submission, NothingOrBothIsRefused) {
  EXPECT_THAT(FirstError(Submission{}), HasSubstr("the job is empty"));
  const job::v1::JobSpec spec;
  Submission both = Yaml(MinimalJob());
  both.spec = &spec;
  EXPECT_THAT(FirstError(both), HasSubstr("not both"));
}

TEST(Submission, EveryFaultIsToldWithItsPlace) {
  const CheckedSubmission checked =
      Check(Yaml(MinimalJobWith(7, "trainer: {steps: 0}") + "colour: blue\n"));
  ASSERT_EQ(checked.errors.size(), 2U);
  EXPECT_EQ(checked.errors[0].line, 7);
  EXPECT_EQ(checked.errors[0].path, "trainer.steps");
  EXPECT_EQ(checked.errors[1].path, "colour");
}

TEST(Submission, ALossThatContradictsItselfIsRefused) {
  EXPECT_THAT(
      FirstError(Yaml(MinimalJob() + "loss: {preset: decoupled_ppo, anchor: behavior, correction: "
                                     "{kind: tis, cap: 2.0}}\n")),
      HasSubstr("loss"));
}

TEST(Submission, OptionsThatNoScorerTakesAreToldWithTheirPlaces) {
  const CheckedSubmission checked =
      Check(Yaml(MinimalJobWith(6,
                                "reward: {components: {a: {type: regex, pattern: \"(\"}, "
                                "b: {type: regex, pattern: \"[\"}}}")));
  ASSERT_EQ(checked.errors.size(), 2U) << FormatConfigErrors(checked.errors);
  EXPECT_EQ(checked.errors[0].path, "reward.components.a.pattern");
  EXPECT_EQ(checked.errors[0].line, 6);
  EXPECT_THAT(checked.errors[0].message, HasSubstr("parenthesis"));
  EXPECT_EQ(checked.errors[1].path, "reward.components.b.pattern");
}

TEST(Submission, OptionsThatAnEnvironmentDoesNotHaveAreTold) {
  const std::string reward = MinimalJobWith(6, "reward: {components: {a: {type: environment}}}");
  const CheckedSubmission checked =
      Check(Yaml(reward + "environment: {type: guess_number, options: {low: \"0\", max: many}}\n"));
  ASSERT_EQ(checked.errors.size(), 2U) << FormatConfigErrors(checked.errors);
  EXPECT_EQ(checked.errors[0].path, "environment.options.low");
  EXPECT_EQ(checked.errors[0].line, 9);
  EXPECT_THAT(checked.errors[0].message, HasSubstr("guess_number has no such option; use max"));
  EXPECT_EQ(checked.errors[1].path, "environment.options.max");
  EXPECT_THAT(checked.errors[1].message, HasSubstr("'many'"));
  EXPECT_EQ(FirstError(Yaml(reward + "environment: {type: guess_number, options: {max: \"9\"}}\n")),
            "");
}

TEST(Submission, WhatAUserServesIsNotAsked) {
  EXPECT_EQ(FirstError(Yaml(
                MinimalJobWith(6, "reward: {components: {a: {type: grpc, address: \"h:1\"}}}") +
                "environment: {type: grpc, address: \"h:2\", options: {any: thing}}\n")),
            "");
}

TEST(Submission, AMissingDatasetIsToldBeforeAnythingStarts) {
  EXPECT_THAT(
      FirstError(Yaml(MinimalJobWith(
          4, "dataset: {type: jsonl, path: /nowhere/rows.jsonl, prompt: \"{q}\", answer: a}"))),
      HasSubstr("/nowhere/rows.jsonl"));
}

// Both files of a dataset must be inside the allowed folders.
TEST(Submission, AFileThatJobsMayNotNameIsRefused) {
  const ScratchFolder scratch;
  scratch.Write("data/rows.jsonl", "{\"q\": \"1\", \"answer\": \"a\"}\n");
  scratch.Write("users.jsonl", "{\"q\": \"1\", \"answer\": \"a\"}\n");
  const auto error = [&](const std::string& path, const std::string& eval_path) {
    const CheckedSubmission checked =
        Check(Yaml(MinimalJobWith(4, "dataset: {type: jsonl, path: " + scratch.File(path) +
                                         ", eval_path: " + scratch.File(eval_path) +
                                         ", prompt: \"{q}\", answer: answer}") +
                   "eval: {rows: 1}\n"),
              *DataRoots::Create({scratch.File("data")}));
    return FormatConfigErrors(checked.errors);
  };
  EXPECT_EQ(error("data/rows.jsonl", "data/rows.jsonl"), "");
  EXPECT_THAT(error("users.jsonl", "data/rows.jsonl"),
              AllOf(HasSubstr("dataset: "), HasSubstr("--data-root")));
  EXPECT_THAT(error("data/rows.jsonl", "users.jsonl"), HasSubstr("--data-root"));
  EXPECT_THAT(error("data/../users.jsonl", "data/rows.jsonl"), HasSubstr("--data-root"));
}

TEST(Submission, ATransportOfOneProcessDoesNotFitACluster) {
  EXPECT_THAT(FirstError(Yaml(MinimalJob() + "weight_sync: {transport: inprocess}\n")),
              HasSubstr("weight_sync.transport"));
}

TEST(Submission, TooManyOverridesAreRefusedUnread) {
  Submission submission = Yaml(MinimalJob());
  submission.overrides.assign(kMaxOverrides + 1, "a=b");
  EXPECT_THAT(FirstError(submission), HasSubstr("more than 1000"));
}

}  // namespace
}  // namespace freshet
