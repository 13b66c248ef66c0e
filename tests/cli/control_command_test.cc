// pause, resume, cancel, delete, scale.
#include "services/runtime/error_details.h"
#include "tests/cli/command_fixture.h"

namespace freshet {
namespace {

using testing::HasSubstr;

class ControlCommandTest : public CommandFixture {
 protected:
  ControlCommandTest() { service_.AddJob(EndedJob("a", job::v1::JOB_STATE_RUNNING), {}); }
};

TEST_F(ControlCommandTest, SteersAJob) {
  EXPECT_EQ(Run({"pause", "a", "--reason", "lunch"}).out, "a PAUSED: lunch\n");
  EXPECT_EQ(Run({"resume", "a"}).out, "a RUNNING\n");
  EXPECT_EQ(Run({"cancel", "a"}).out, "a CANCELLED\n");
  EXPECT_EQ(Run({"delete", "a"}).out, "a deleted\n");
  const ChildResult gone = Run({"get", "a"});
  EXPECT_EQ(gone.exit_code, 4);
}

TEST_F(ControlCommandTest, AResumeCanRaiseLimitsOnCalls) {
  const std::vector<std::string> resume = {"resume", "a", "--max-calls"};
  const auto with = [this, resume](std::vector<std::string> more) {
    more.insert(more.begin(), resume.begin(), resume.end());
    return Run(more);
  };
  EXPECT_EQ(with({"judge=8000", "--max-calls", "model=9"}).exit_code, 0);
  EXPECT_EQ(service_.last_resume().max_calls_size(), 2);
  EXPECT_EQ(service_.last_resume().max_calls().at("judge"), 8000);
  for (const char* bad : {"judge", "judge=", "judge=many", "judge=9223372036854775808"}) {
    const ChildResult result = with({bad});
    EXPECT_EQ(result.exit_code, 2) << bad;
    EXPECT_THAT(result.err, HasSubstr("give NAME=N"));
  }
}

TEST_F(ControlCommandTest, ScalesARoleAndAPool) {
  EXPECT_EQ(Run({"scale", "rollout", "4"}).out, "rollout 0 -> 4\n");
  EXPECT_EQ(Run({"scale", "rollout/small", "2"}).out, "rollout/small 0 -> 2\n");
  EXPECT_EQ(service_.last_scale().pool(), "small");
  EXPECT_EQ(Run({"scale", "rollout", "1"}).out, "rollout 4 -> 1\n");
  EXPECT_EQ(Run({"scale", "rollout", "-1"}).exit_code, 2);
  EXPECT_EQ(Run({"scale", "rollout"}).exit_code, 2);
}

TEST_F(ControlCommandTest, RepeatsAnIdempotentCall) {
  service_.FailNext("Pause", absl::UnavailableError("goes down"));
  const ChildResult result = Run({"pause", "a"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(service_.calls()["Pause"], 2);
}

TEST_F(ControlCommandTest, DeleteWaitsForWorkersThatStillStop) {
  runtime::ErrorDetails details;
  details.reason = "TRY_AGAIN";
  const absl::Status busy =
      runtime::WithDetails(absl::UnavailableError("rollout r0 is still stopping"), details);
  for (int i = 0; i < 6; ++i) service_.FailNext("Delete", busy);
  const ChildResult result = Run({"delete", "a"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "a deleted\n");
  EXPECT_EQ(service_.calls()["Delete"], 7);
}

TEST_F(ControlCommandTest, AJobThatNeverExistedIsNotDeletedButOneThatGoesMeanwhileIs) {
  const absl::Status unknown = absl::NotFoundError("there is no job nobody");
  service_.FailNext("Delete", unknown);
  service_.FailNext("Delete", absl::UnavailableError("goes down"));
  service_.FailNext("Delete", unknown);
  EXPECT_EQ(Run({"delete", "nobody"}).exit_code, 4) << "although an answer was lost";
  const ChildResult refused = Run({"delete", "nobody"});
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_EQ(refused.err, "freshet: there is no job nobody; freshet list names the jobs\n");
  EXPECT_EQ(refused.out, "");
  runtime::ErrorDetails details;
  details.reason = "TRY_AGAIN";
  for (int i = 0; i < 6; ++i) {
    service_.FailNext("Delete", runtime::WithDetails(absl::UnavailableError("stops"), details));
  }
  service_.FailNext("Delete", unknown);
  EXPECT_EQ(Run({"delete", "a"}).out, "a deleted\n");
}

TEST_F(ControlCommandTest, ADeletionWhoseAnswerIsLostIsDone) {
  service_.FailNext("Delete", absl::UnavailableError("goes down"));
  service_.FailNext("Delete", absl::NotFoundError("there is no job a"));
  EXPECT_EQ(Run({"delete", "a"}).out, "a deleted\n");
}

TEST_F(ControlCommandTest, ARefusalIsNotRepeated) {
  service_.FailNext("Delete", absl::FailedPreconditionError("job a runs; cancel it first"));
  const ChildResult result = Run({"delete", "a"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.err, "freshet: job a runs; cancel it first\n");
  EXPECT_EQ(service_.calls()["Delete"], 1);
}

}  // namespace
}  // namespace freshet
