#include "services/reward/scorers/decimal_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

TEST(DecimalText, FindsNumbersInCanonicalForm) {
  using List = std::vector<std::string>;
  const struct {
    const char* text;
    List want;
  } cases[] = {
      {"", {}},
      {"no number - . , $ %", {}},
      {"18", {"18"}},
      {"18.", {"18"}},
      {"18.0", {"18"}},
      {"18.50", {"18.5"}},
      {"018", {"18"}},
      {"000", {"0"}},
      {"-0.0", {"0"}},
      {"$18", {"18"}},
      {"\\$18", {"18"}},
      {"50%", {"50"}},
      {"-5", {"-5"}},
      {"$-5", {"-5"}},
      {"-$5", {"-5"}},
      {"-\\$5", {"-5"}},
      {"+5", {"5"}},
      {"\xE2\x88\x92"
       "7",
       {"-7"}},
      {"= -5", {"-5"}},
      {"(-5)", {"-5"}},
      {"16-3", {"16", "3"}},
      {"(1)-3", {"1", "3"}},
      {"x-3", {"3"}},
      {"16 - 3", {"16", "3"}},
      {"1,000", {"1000"}},
      {"1,234,567.80", {"1234567.8"}},
      {"1{,}000", {"1000"}},
      {"1\\,000", {"1000"}},
      {"1,2", {"1", "2"}},
      {"1,0000", {"1", "0"}},
      {"1234,567", {"1234", "567"}},
      {"1, 000", {"1", "0"}},
      {".5", {"0.5"}},
      {"-.5", {"-0.5"}},
      {"1.2.5", {"1.2", "5"}},
      {"1/2", {"1", "2"}},
      {"5kg", {"5"}},
      {"123456789012345678901234567890.10", {"123456789012345678901234567890.1"}},
  };
  for (const auto& c : cases) EXPECT_EQ(FindDecimals(c.text), c.want) << c.text;
}

TEST(DecimalText, ReadsALongRunOfDigitsAsOneNumber) {
  const std::string digits(1 << 20, '7');
  EXPECT_THAT(FindDecimals(digits), testing::ElementsAre(digits));
}

}  // namespace
}  // namespace freshet
