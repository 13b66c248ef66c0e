#include "services/runtime/error_details.h"

#include <gtest/gtest.h>

namespace freshet::runtime {
namespace {

TEST(ErrorDetails, ComeBackAsTheyWereAttached) {
  ErrorDetails details;
  details.reason = "NOT_LEADER";
  details.metadata = {{"leader", "10.0.0.1:7070"}, {"token", "7"}};
  details.retry_after = absl::Milliseconds(1500);
  details.violations = {{"spec.seed", "must be at least 0"}, {"id", "is empty"}};
  const absl::Status status = WithDetails(absl::UnavailableError("stands by"), details);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "stands by");
  EXPECT_EQ(DetailsOf(status), details);
}

TEST(ErrorDetails, AreEmptyWhereNoneWereAttached) {
  EXPECT_EQ(DetailsOf(absl::InternalError("x")), ErrorDetails());
  EXPECT_EQ(DetailsOf(WithDetails(absl::InternalError("x"), {})), ErrorDetails());
}

TEST(ErrorDetails, LeaveAnOkStatusAlone) {
  EXPECT_EQ(WithDetails(absl::OkStatus(), {.reason = "X"}), absl::OkStatus());
}

TEST(ErrorDetails, ThatCannotBeReadAreLeftOut) {
  absl::Status status = absl::InternalError("x");
  status.SetPayload("type.googleapis.com/google.rpc.ErrorInfo", absl::Cord("\xff\xff\xff"));
  status.SetPayload("type.googleapis.com/other.Type", absl::Cord("anything"));
  EXPECT_EQ(DetailsOf(status), ErrorDetails());
}

}  // namespace
}  // namespace freshet::runtime
