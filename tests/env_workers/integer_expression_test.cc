#include "env_workers/integer_expression.h"

#include <string>

#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(IntegerExpression, KeepsTheOrderOfOperators) {
  struct Case {
    const char* text;
    int64_t value;
  };
  const Case cases[] = {
      {"0", 0},
      {"7", 7},
      {"-7", -7},
      {"12*34", 408},
      {"1+2*3", 7},        // 1 + 6
      {"2*3+1", 7},        // 6 + 1
      {"10-4-3", 3},       // left-associative
      {"1-2*3*4+5", -18},  // 1 - 24 + 5
      {"-2*3", -6},
      {"007+1", 8},
      {"9223372036854775807", INT64_MAX},
      {"-9223372036854775808", INT64_MIN},
  };
  for (const Case& c : cases) {
    const auto value = EvaluateExpression(c.text);
    ASSERT_TRUE(value.ok()) << c.text << ": " << value.status();
    EXPECT_EQ(*value, c.value) << c.text;
  }
}

TEST(IntegerExpression, RefusesWhatIsNoExpression) {
  for (const char* text : {"", "+", "-", "1+", "+1", "1++2", "1--2", "1*-2", "1 + 2", "(1)", "1/2",
                           "1e9", "0x10", "1+2=", "a", "--1", "\xff\xfe", "1,2"}) {
    EXPECT_EQ(EvaluateExpression(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(EvaluateExpression(std::string("1\0+1", 4)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(IntegerExpression, RefusesValuesBeyond64Bits) {
  for (const char* text : {"9223372036854775808", "9223372036854775807+1", "-9223372036854775808-1",
                           "9223372036854775807*2", "99999999999999999999999999",
                           "3037000500*3037000500", "-9223372036854775808*2"}) {
    EXPECT_EQ(EvaluateExpression(text).status().code(), absl::StatusCode::kOutOfRange) << text;
  }
}

TEST(IntegerExpression, BoundsTheLength) {
  std::string text = "1";
  while (text.size() + 2 <= kMaxExpressionBytes) text += "+1";
  ASSERT_TRUE(EvaluateExpression(text).ok());
  EXPECT_EQ(EvaluateExpression(text + "+1").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(EvaluateExpression(std::string(10 << 20, '1')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(IntegerExpression, ParsesWholeIntegersOnly) {
  EXPECT_EQ(ParseInteger("042"), 42);
  EXPECT_EQ(ParseInteger("-3"), -3);
  for (const char* text : {"", "-", "4 2", "42 ", "+1", "1.0", "9223372036854775808"}) {
    EXPECT_FALSE(ParseInteger(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace freshet
