#include "services/runtime/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/rpc/status.pb.h"
#include "services/runtime/error_details.h"

namespace freshet::runtime {
namespace {

TEST(Status, KeepsCodeAndMessageBothWays) {
  for (int code = 1; code <= 16; ++code) {
    for (const char* message : {"", "version 7 is older than bound 9", "caf\xc3\xa9 100%\n"}) {
      const absl::Status status(static_cast<absl::StatusCode>(code), message);
      const grpc::Status sent = StatusToGrpc(status);
      EXPECT_EQ(static_cast<int>(sent.error_code()), code);
      EXPECT_EQ(sent.error_message(), message);
      EXPECT_EQ(sent.error_details(), "");
      EXPECT_EQ(GrpcToStatus(sent), status);
    }
  }
  EXPECT_TRUE(StatusToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(GrpcToStatus(grpc::Status::OK).ok());
}

TEST(Status, CarriesDetailsAsGoogleRpcStatus) {
  ErrorDetails details;
  details.reason = "BAD_JOB";
  details.metadata = {{"job", "a"}};
  details.retry_after = absl::Milliseconds(250);
  details.violations = {{"spec.seed", "must be at least 0"}};
  const absl::Status status = WithDetails(absl::InvalidArgumentError("bad job"), details);
  const grpc::Status sent = StatusToGrpc(status);
  google::rpc::Status proto;
  ASSERT_TRUE(proto.ParseFromString(sent.error_details()));
  EXPECT_EQ(proto.code(), 3);
  EXPECT_EQ(proto.message(), "bad job");
  EXPECT_EQ(proto.details_size(), 3);
  EXPECT_EQ(GrpcToStatus(sent), status);
  EXPECT_EQ(DetailsOf(GrpcToStatus(sent)), details);
}

TEST(Status, CutsViolationsThatDoNotFit) {
  ErrorDetails details;
  details.reason = "BAD_JOB";
  for (int i = 0; i < 1000; ++i) details.violations.push_back({std::to_string(i), "is wrong"});
  const grpc::Status sent =
      StatusToGrpc(WithDetails(absl::InvalidArgumentError("many errors"), details));
  EXPECT_LE(sent.error_details().size(), kMaxStatusBytes);
  const ErrorDetails back = DetailsOf(GrpcToStatus(sent));
  EXPECT_EQ(back.reason, "BAD_JOB");
  EXPECT_GT(back.violations.size(), 50u);
  EXPECT_LT(back.violations.size(), 1000u);
  EXPECT_EQ(back.violations.front().field, "0");
}

TEST(Status, CutsAMessageThatDoesNotFitBetweenCharacters) {
  std::string text;
  while (text.size() < 50'000) text += "\xc3\xa9";
  const grpc::Status sent = StatusToGrpc(WithDetails(absl::InternalError(text), {.reason = "X"}));
  EXPECT_LE((sent.error_message().size() - 3) * 3 + 3, kMaxStatusBytes);  // percent-encoded
  EXPECT_THAT(sent.error_message(), ::testing::EndsWith("\xc3\xa9..."));
  EXPECT_EQ(sent.error_details(), "");
}

TEST(Status, MakesMessagesWithDetailsUtf8) {
  const absl::Status status = WithDetails(absl::InternalError("a\xff\xc3"), {.reason = "X"});
  google::rpc::Status proto;
  ASSERT_TRUE(proto.ParseFromString(StatusToGrpc(status).error_details()));
  EXPECT_EQ(proto.message(), "a??");
  EXPECT_EQ(DetailsOf(GrpcToStatus(StatusToGrpc(status))).reason, "X");
}

TEST(Status, IgnoresDetailsThatCannotBeRead) {
  const absl::Status status =
      GrpcToStatus(grpc::Status(grpc::StatusCode::ABORTED, "m", "\xff\xff not a proto"));
  EXPECT_EQ(status, absl::AbortedError("m"));
}

}  // namespace
}  // namespace freshet::runtime
