// submit and watch.
#include <csignal>
#include <filesystem>

#include "base/file.h"
#include "base/str_cat.h"
#include "tests/cli/command_fixture.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_CANCELLED;
using job::v1::JOB_STATE_FAILED;
using job::v1::JOB_STATE_RUNNING;
using job::v1::JOB_STATE_SUCCEEDED;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

const std::string kJob = FRESHET_SOURCE_DIR "/examples/smoke.yaml";

class SubmitCommandTest : public CommandFixture {};

TEST_F(SubmitCommandTest, PrintsTheIdAndTheNextCommand) {
  const ChildResult result = Run({"submit", kJob});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "smoke-1\n");
  EXPECT_EQ(result.err, "next: freshet watch smoke-1\n");
}

TEST_F(SubmitCommandTest, SendsIdOverridesAndPriority) {
  EXPECT_EQ(Run({"submit", kJob, "--id", "a", "--set", "trainer.steps=5", "--set", "seed=9",
                 "--priority", "-7"})
                .exit_code,
            0);
  const job::v1::SubmitRequest request = service_.last_submit();
  EXPECT_EQ(request.job_id(), "a");
  EXPECT_EQ(request.priority(), -7);
  EXPECT_THAT(request.overrides(), testing::ElementsAre("trainer.steps=5", "seed=9"));
  EXPECT_EQ(request.file_name(), kJob);
}

TEST_F(SubmitCommandTest, RelativePathsOfThisMachineBecomeAbsolute) {
  folder_.Write("rows.jsonl", "{}\n");
  EXPECT_EQ(Run({"submit", kJob, "--set",
                 "dataset={type: jsonl, path: rows.jsonl, prompt: x, answer: y}"})
                .exit_code,
            0);
  EXPECT_THAT(service_.last_submit().overrides(),
              Contains(StrCat("dataset.path=", std::filesystem::canonical(folder_.path()).string(),
                              "/rows.jsonl")));
}

TEST_F(SubmitCommandTest, AFaultInTheFileIsToldWithoutTheServer) {
  const ChildResult result = Run({"submit", kJob, "--set", "trainer.stepz=5"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("trainer.stepz"));
  EXPECT_EQ(Run({"submit", "absent.yaml"}).exit_code, 3);
  EXPECT_TRUE(service_.calls().empty());
}

TEST_F(SubmitCommandTest, DryRunStoresNothing) {
  const ChildResult result = Run({"submit", kJob, "--dry-run"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("group_size: 8\n"));
  EXPECT_EQ(service_.calls().count("Submit"), 0U);
}

TEST_F(SubmitCommandTest, WaitReturnsHowTheJobEnded) {
  EXPECT_EQ(Run({"submit", kJob, "--wait"}).exit_code, 0);
  service_.AddJob(EndedJob("bad", JOB_STATE_FAILED, "disk full"),
                  EventsOfRun(1, JOB_STATE_FAILED, "disk full"));
  const ChildResult failed = Run({"submit", kJob, "--id", "bad", "--wait"});
  EXPECT_EQ(failed.exit_code, 5);
  EXPECT_EQ(failed.out, "bad\n");
  EXPECT_THAT(failed.err, AllOf(HasSubstr("disk full"), HasSubstr("freshet describe bad")));
  service_.AddJob(EndedJob("stopped", JOB_STATE_CANCELLED), EventsOfRun(1, JOB_STATE_CANCELLED));
  EXPECT_EQ(Run({"submit", kJob, "--id", "stopped", "-f"}).exit_code, 6);
}

// Events of a run with these evaluation results.
std::vector<job::v1::Event> EvaluatedRun(const std::vector<double>& results,
                                         job::v1::JobState end = JOB_STATE_SUCCEEDED) {
  std::vector<job::v1::Event> events;
  const auto add = [&]() -> job::v1::Event& {
    job::v1::Event& event = events.emplace_back();
    event.set_cursor(StrCat(events.size()));
    event.mutable_time()->set_seconds(1700000000 + static_cast<int64_t>(events.size()));
    return event;
  };
  add().mutable_state()->set_state(JOB_STATE_RUNNING);
  for (size_t i = 0; i < results.size(); ++i) {
    add().set_metrics_json(StrCat(R"({"eval_name": "heldout", "eval_accuracy": )", results[i],
                                  R"(, "policy_version": )", 10 * i, R"(, "lineage": 0})"));
  }
  add().mutable_state()->set_state(end);
  return events;
}

TEST_F(SubmitCommandTest, MinGainComparesTheLastEvaluationWithTheFirst) {
  service_.AddJob(EndedJob("better", JOB_STATE_SUCCEEDED), EvaluatedRun({0.5, 0.9, 0.6}));
  const ChildResult enough = Run({"submit", kJob, "--id", "better", "--wait", "--min-gain", "0.1"});
  EXPECT_EQ(enough.exit_code, 0) << enough.err;
  const ChildResult more = Run({"submit", kJob, "--id", "better", "-f", "--min-gain", "0.2"});
  EXPECT_EQ(more.exit_code, 1);
  EXPECT_THAT(more.err, HasSubstr("freshet: evaluation heldout rose by 0.1, less than 0.2\n"));
  service_.AddJob(EndedJob("worse", JOB_STATE_SUCCEEDED), EvaluatedRun({0.5, 0.25}));
  const ChildResult worse = Run({"submit", kJob, "--id", "worse", "--wait", "--min-gain=0"});
  EXPECT_EQ(worse.exit_code, 1);
  EXPECT_THAT(worse.err, HasSubstr("evaluation heldout fell by 0.25, less than 0\n"));
  EXPECT_EQ(Run({"submit", kJob, "--id", "worse", "--wait", "--min-gain=-0.3"}).exit_code, 0);
}

TEST_F(SubmitCommandTest, MinGainNeedsTwoEvaluationsOfAJobThatSucceeded) {
  service_.AddJob(EndedJob("once", JOB_STATE_SUCCEEDED), EvaluatedRun({0.5}));
  const ChildResult once = Run({"submit", kJob, "--id", "once", "--wait", "--min-gain", "0"});
  EXPECT_EQ(once.exit_code, 1);
  EXPECT_THAT(once.err, HasSubstr("job once has 1 evaluations"));
  service_.AddJob(EndedJob("bad", JOB_STATE_FAILED), EvaluatedRun({0.5, 0.9}, JOB_STATE_FAILED));
  EXPECT_EQ(Run({"submit", kJob, "--id", "bad", "--wait", "--min-gain", "0"}).exit_code, 5);
  const ChildResult alone = Run({"submit", kJob, "--id", "new", "--min-gain", "0.1"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--wait or -f"));
  EXPECT_EQ(service_.last_submit().job_id(), "bad");  // nothing new was submitted
}

TEST_F(SubmitCommandTest, FollowShowsEverySteps) {
  const ChildResult result = Run({"submit", kJob, "-f"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* step : {"step 1/3", "step 2/3", "step 3/3", "SUCCEEDED"}) {
    EXPECT_THAT(result.out, HasSubstr(step));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
}

TEST_F(SubmitCommandTest, ASubmitWithAnIdIsRepeated) {
  service_.FailNext("Submit", absl::UnavailableError("starting"));
  EXPECT_EQ(Run({"submit", kJob, "--id", "a"}).exit_code, 0);
  EXPECT_EQ(service_.calls()["Submit"], 2);
  service_.FailNext("Submit", absl::UnavailableError("starting"));
  EXPECT_EQ(Run({"submit", kJob}).exit_code, 7);
  EXPECT_EQ(service_.calls()["Submit"], 3);
}

TEST_F(SubmitCommandTest, WaitHasATimeLimit) {
  service_.AddJob(EndedJob("slow", JOB_STATE_RUNNING), EventsOfRun(1, JOB_STATE_RUNNING));
  service_.HoldWatch();
  const ChildResult result = Run({"submit", kJob, "--id", "slow", "--wait", "--timeout", "0.3"});
  EXPECT_EQ(result.exit_code, 8);
  EXPECT_THAT(result.err, HasSubstr("freshet watch slow"));
}

TEST_F(SubmitCommandTest, TheSecondCtrlCStopsWaiting) {
  service_.AddJob(EndedJob("slow", JOB_STATE_RUNNING), EventsOfRun(1, JOB_STATE_RUNNING));
  service_.HoldWatch();
  const auto child = Start({"submit", kJob, "--id", "slow", "-f"});
  ASSERT_TRUE(child->AwaitOutput("step 1/3", absl::Seconds(10)));
  child->Signal(SIGINT);
  ASSERT_TRUE(child->AwaitOutput("Ctrl-C again", absl::Seconds(10)));
  child->Signal(SIGINT);
  const ChildResult result = child->Wait(absl::Seconds(10));
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, HasSubstr("freshet cancel slow"));
}

TEST_F(SubmitCommandTest, CtrlCEndsWatchAndLeavesTheJob) {
  service_.AddJob(EndedJob("slow", JOB_STATE_RUNNING), EventsOfRun(1, JOB_STATE_RUNNING));
  service_.HoldWatch();
  const auto child = Start({"watch", "slow"});
  ASSERT_TRUE(child->AwaitOutput("step 1/3", absl::Seconds(10)));
  child->Signal(SIGINT);
  EXPECT_EQ(child->Wait(absl::Seconds(10)).exit_code, 0);
  EXPECT_EQ(service_.calls().count("Cancel"), 0U);
}

TEST_F(SubmitCommandTest, WatchGoesOnAfterABrokenStreamWithoutRepeating) {
  service_.AddJob(EndedJob("long", JOB_STATE_SUCCEEDED), EventsOfRun(9, JOB_STATE_SUCCEEDED));
  service_.BreakWatchAfter(3);
  const ChildResult result = Run({"watch", "long", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (int cursor = 1; cursor <= 11; ++cursor) {
    const std::string key = StrCat("\"cursor\":\"", cursor, "\"");
    const size_t first = result.out.find(key);
    ASSERT_NE(first, std::string::npos) << cursor;
    EXPECT_EQ(result.out.find(key, first + 1), std::string::npos) << cursor;
  }
  EXPECT_THAT(result.err, HasSubstr("trying again"));
}

TEST_F(SubmitCommandTest, WatchOfAnUnknownJobIsRefused) {
  const ChildResult result = Run({"watch", "nobody"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, HasSubstr("freshet list"));
}

// The jobs of a team with the policies a and b, in pools of their own.
void WriteTeam(const ScratchFolder& folder, const std::string& pool_of_b = "b") {
  const absl::StatusOr<std::string> job = ReadFile(kJob, 1 << 20);
  ASSERT_TRUE(job.ok()) << job.status();
  folder.Write("team.yaml",
               StrCat(*job, "\npolicies: {a: {pool: a}, b: {pool: ", pool_of_b, "}}\n"));
}

TEST_F(SubmitCommandTest, AFileWithPoliciesIsATeamOfJobs) {
  WriteTeam(folder_);
  const ChildResult result = Run({"submit", "team.yaml", "--id", "t", "--wait"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "t-a\nt-b\n");
  const job::v1::SubmitRequest request = service_.last_submit();
  EXPECT_EQ(request.policy(), "b");
  EXPECT_THAT(request.overrides(), Contains("team=t"));
  EXPECT_EQ(service_.calls()["Validate"], 2);
}

TEST_F(SubmitCommandTest, IfAPolicyIsRefusedTheOthersAreNotSubmitted) {
  WriteTeam(folder_);
  service_.FailNext("Validate", absl::InvalidArgumentError("no such file"));
  const ChildResult invalid = Run({"submit", "team.yaml", "--id", "t"});
  EXPECT_EQ(invalid.exit_code, 4);
  EXPECT_THAT(invalid.err, HasSubstr("nothing was submitted"));
  EXPECT_EQ(service_.calls()["Submit"], 0);
}

TEST_F(SubmitCommandTest, IfAPolicyIsRefusedTheCreatedOnesAreCancelled) {
  WriteTeam(folder_);
  service_.FailNext("Submit", absl::OkStatus());
  service_.FailNext("Submit", absl::ResourceExhaustedError("too many jobs"));
  const ChildResult result = Run({"submit", "team.yaml", "--id", "t"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, AllOf(HasSubstr("too many jobs"), HasSubstr("job t-a is cancelled"),
                                Not(HasSubstr("t-b"))));
  EXPECT_EQ(service_.calls()["Cancel"], 1);
}

TEST_F(SubmitCommandTest, APolicyThatExistedGoesOnIfAnotherIsRefused) {
  WriteTeam(folder_);
  service_.AddJob(EndedJob("t-a", JOB_STATE_RUNNING), {});
  service_.FailNext("Submit", absl::OkStatus());
  service_.FailNext("Submit", absl::ResourceExhaustedError("too many jobs"));
  EXPECT_EQ(Run({"submit", "team.yaml", "--id", "t"}).exit_code, 4);
  EXPECT_EQ(service_.calls()["Cancel"], 0);
}

TEST_F(SubmitCommandTest, APolicyWhoseSubmitWasNotAnsweredIsCancelledOrNamed) {
  WriteTeam(folder_);
  service_.FailNext("Submit", absl::OkStatus());
  service_.FailNext("Submit", absl::DeadlineExceededError("no answer"));
  const ChildResult absent = Run({"submit", "team.yaml", "--id", "t"});
  EXPECT_THAT(absent.err, AllOf(HasSubstr("job t-a is cancelled"), Not(HasSubstr("t-b"))));
  EXPECT_EQ(service_.calls()["Cancel"], 2);
  service_.FailNext("Submit", absl::OkStatus());
  service_.FailNext("Submit", absl::DeadlineExceededError("no answer"));
  service_.FailNext("Cancel", absl::OkStatus());
  service_.FailNext("Cancel", absl::DeadlineExceededError("no answer"));
  const ChildResult left = Run({"submit", "team.yaml", "--id", "u"});
  EXPECT_THAT(left.err, AllOf(HasSubstr("job u-a is cancelled"),
                              HasSubstr("job u-b may run; cancel it with: freshet cancel u-b")));
}

TEST_F(SubmitCommandTest, APolicyThatWasCancelledStopsTheTeam) {
  WriteTeam(folder_);
  service_.AddJob(EndedJob("t-b", JOB_STATE_CANCELLED), {});
  const ChildResult result = Run({"submit", "team.yaml", "--id", "t"});
  EXPECT_THAT(result.err, HasSubstr("job t-b was cancelled; choose another --id"));
  EXPECT_EQ(service_.calls()["Submit"], 0);
}

TEST_F(SubmitCommandTest, ATeamsIdMustLeaveRoomForThePolicies) {
  WriteTeam(folder_);
  const ChildResult result = Run({"submit", "team.yaml", "--id", std::string(62, 'x')});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--id"));
  EXPECT_TRUE(service_.calls().empty());
}

TEST_F(SubmitCommandTest, PoliciesWithOnePoolAreRefused) {
  WriteTeam(folder_, "a");
  const ChildResult result = Run({"submit", "team.yaml"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("policies.b.pool: is a for the policies a and b"));
  EXPECT_TRUE(service_.calls().empty());
}

}  // namespace
}  // namespace freshet
