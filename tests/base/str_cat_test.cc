#include "base/str_cat.h"

#include <string>
#include <string_view>

#include "base/status_macros.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(StrCat, JoinsAllKindsOfStringsAndNumbers) {
  const std::string_view view = "view";
  const std::string text = "text";
  EXPECT_EQ(StrCat("a ", view, " ", text, " ", 7, " ", int64_t{-8}, " ", 2.5),
            "a view text 7 -8 2.5");
  EXPECT_EQ(StrCat(), "");
}

TEST(StrCat, TakesAViewIntoTheMiddleOfAString) {
  const std::string text = "abcdef";
  EXPECT_EQ(StrCat(std::string_view(text).substr(2, 2)), "cd");
}

TEST(StatusOf, CarriesCodeAndJoinedMessage) {
  const absl::Status status = InvalidArgument("top_p ", 1.5, " is not in (0, 1]");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status), "top_p 1.5 is not in (0, 1]");
  EXPECT_EQ(FailedPrecondition("x").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(NotFound("x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Internal("x").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(DataLoss("x").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ResourceExhausted("x").code(), absl::StatusCode::kResourceExhausted);
}

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgument(value, " is odd");
  return value / 2;
}
absl::StatusOr<int> Quarter(int value) {
  FRESHET_ASSIGN_OR_RETURN(const int half, Half(value));
  FRESHET_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}
absl::Status CheckQuarter(int value) {
  FRESHET_RETURN_IF_ERROR(Quarter(value).status());
  return absl::OkStatus();
}

TEST(StatusMacros, ReturnTheFirstErrorAndElseTheValue) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Message(Quarter(7).status()), "7 is odd");
  EXPECT_EQ(Message(Quarter(6).status()), "3 is odd");
  EXPECT_TRUE(CheckQuarter(8).ok());
  EXPECT_EQ(Message(CheckQuarter(10)), "5 is odd");
}

}  // namespace
}  // namespace freshet
