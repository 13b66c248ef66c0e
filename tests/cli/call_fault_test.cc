#include "cli/client/call_fault.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "services/runtime/error_details.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

ServerTarget Target() {
  ServerTarget target;
  target.address = "host:1";
  target.source = "--server";
  return target;
}

TEST(CallError, ExitCodes) {
  const std::pair<absl::StatusCode, ExitCode> kCases[] = {
      {absl::StatusCode::kOk, kExitDone},
      {absl::StatusCode::kUnavailable, kExitNoConnection},
      {absl::StatusCode::kDeadlineExceeded, kExitTimeout},
      {absl::StatusCode::kInternal, kExitInternal},
      {absl::StatusCode::kUnknown, kExitInternal},
      {absl::StatusCode::kDataLoss, kExitInternal},
      {absl::StatusCode::kInvalidArgument, kExitRefused},
      {absl::StatusCode::kNotFound, kExitRefused},
      {absl::StatusCode::kAlreadyExists, kExitRefused},
      {absl::StatusCode::kFailedPrecondition, kExitRefused},
      {absl::StatusCode::kPermissionDenied, kExitRefused},
      {absl::StatusCode::kUnauthenticated, kExitRefused},
      {absl::StatusCode::kResourceExhausted, kExitRefused},
      {absl::StatusCode::kOutOfRange, kExitRefused},
      {absl::StatusCode::kUnimplemented, kExitRefused},
  };
  for (const auto& [code, exit_code] : kCases) {
    EXPECT_EQ(CallExitCode(absl::Status(code, "x")), exit_code) << absl::StatusCodeToString(code);
  }
}

TEST(CallError, OneLinePerWrongField) {
  runtime::ErrorDetails details;
  details.violations = {{"trainer.steps", "job.yaml:3: trainer.steps: 0 is below 1; use 1 or more"},
                        {"model.path", "no such directory"}};
  const absl::Status status = runtime::WithDetails(absl::InvalidArgumentError("2 errors"), details);
  EXPECT_THAT(CallErrorLines(status, Target()),
              ElementsAre("job.yaml:3: trainer.steps: 0 is below 1; use 1 or more",
                          "model.path: no such directory"));
}

TEST(CallError, BoundsTheNumberOfLines) {
  runtime::ErrorDetails details;
  for (int i = 0; i < 50; ++i) details.violations.push_back({"a", "b"});
  const std::vector<std::string> lines =
      CallErrorLines(runtime::WithDetails(absl::InvalidArgumentError("x"), details), Target());
  ASSERT_THAT(lines, SizeIs(21));
  EXPECT_EQ(lines.back(), "and 30 more");
}

TEST(CallError, SaysWhenToTryAgain) {
  runtime::ErrorDetails details;
  details.retry_after = absl::Seconds(4);
  const absl::Status status =
      runtime::WithDetails(absl::ResourceExhaustedError("100 jobs are queued"), details);
  EXPECT_THAT(CallErrorLines(status, Target()),
              ElementsAre("100 jobs are queued; try again in 4.0s"));
}

TEST(CallError, EveryRefusalNamesAFix) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "it is so");
    EXPECT_THAT(CallErrorLines(status, Target()), ElementsAre(HasSubstr("; "))) << code;
  }
}

TEST(CallError, AFixInTheMessageStands) {
  EXPECT_THAT(CallErrorLines(absl::NotFoundError("no job x; did you mean y?"), Target()),
              ElementsAre("no job x; did you mean y?"));
}

TEST(CallError, NamesTheServerThatIsNotReached) {
  const absl::Status status = absl::UnavailableError(
      "failed to connect to all addresses; last error: UNKNOWN: ipv4:1.2.3.4:1: Failed to connect "
      "to remote host: Connection refused");
  EXPECT_THAT(CallErrorLines(status, Target()),
              ElementsAre("no connection to host:1 (--server): Connection refused; start a cluster "
                          "with freshet cluster up, or name another with --server"));
}

TEST(CallError, APasswordThatRedisRefusesIsTheControllersToMend) {
  const std::string fix =
      "; start the controller and the workers with --redis-password-file FILE or the variable "
      "FRESHET_REDIS_PASSWORD, as Redis's requirepass says";
  runtime::ErrorDetails details;
  details.reason = runtime::kNotLeaderReason;
  const std::string leading =
      "no controller leads at the moment: redis refused AUTH: WRONGPASS bad";
  EXPECT_THAT(
      CallErrorLines(runtime::WithDetails(absl::UnavailableError(leading + "; try again"), details),
                     Target()),
      ElementsAre(leading + fix));
  const std::string refused = "redis refused GET: NOAUTH Authentication required.";
  EXPECT_THAT(CallErrorLines(absl::PermissionDeniedError(refused), Target()),
              ElementsAre(refused + fix));
}

TEST(CallError, TextOfTheServerCannotMoveTheCursor) {
  EXPECT_THAT(CallErrorLines(absl::NotFoundError("a\x1b[2J; b"), Target()),
              ElementsAre("a\ufffd[2J; b"));
}

}  // namespace
}  // namespace freshet
