#include "base/json_document.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ErrorOf(const std::string& text, const JsonLimits& limits = {}) {
  const auto parsed = ParseJson(text, "f.json", limits);
  if (parsed.ok()) return "no error";
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message = Message(parsed.status());
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_LT(message.size(), 300U);
  return message;
}

TEST(ParseJson, GivesEveryKindOfValue) {
  const auto parsed = ParseJson(R"({"a": [1, -2, 2.5, true, null, "x"], "b": {}})", "f.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, nlohmann::json::parse(R"({"a": [1, -2, 2.5, true, null, "x"], "b": {}})"));
}

TEST(ParseJson, NamesLineAndColumnOfBrokenText) {
  EXPECT_THAT(ErrorOf("{\"a\": 1,\n \"b\" 2}"), HasSubstr("f.json: parse error at line 2"));
}

TEST(ParseJson, RefusesTruncatedText) { EXPECT_THAT(ErrorOf("{\"a\": [1"), HasSubstr("f.json: ")); }

TEST(ParseJson, RefusesEmptyText) { EXPECT_THAT(ErrorOf(""), HasSubstr("the file is empty")); }

TEST(ParseJson, RefusesRepeatedName) {
  EXPECT_THAT(ErrorOf(R"({"a": 1, "b": 2, "a": 3})"), HasSubstr("the name 'a' occurs twice"));
}

TEST(ParseJson, RefusesInvalidUtf8) { EXPECT_THAT(ErrorOf("\"\xFF\""), HasSubstr("f.json: ")); }

TEST(ParseJson, RefusesNumberOutOfRange) { EXPECT_THAT(ErrorOf("1e999"), HasSubstr("f.json: ")); }

TEST(ParseJson, AcceptsTheDepthLimitAndRefusesOneMore) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_TRUE(ParseJson(nested(64), "f.json").ok());
  EXPECT_THAT(ErrorOf(nested(65)), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(ErrorOf(nested(1'000'000)), HasSubstr("nested deeper than 64 levels"));
}

TEST(ParseJson, AcceptsTheValueLimitAndRefusesOneMore) {
  JsonLimits limits;
  limits.max_values = 4;
  EXPECT_TRUE(ParseJson("[1, 2, 3]", "f.json", limits).ok());
  EXPECT_THAT(ErrorOf("[1, 2, 3, 4]", limits), HasSubstr("more than 4 values"));
}

TEST(NestsDeeper, CountsBracketsOutsideStrings) {
  EXPECT_FALSE(NestsDeeper("[[]]", 2));
  EXPECT_TRUE(NestsDeeper("[{}]", 1));
  EXPECT_FALSE(NestsDeeper(R"({"[[": "\"{{"})", 1));
  EXPECT_TRUE(NestsDeeper(std::string(100'000, '['), 64));
}

TEST(JsonFields, CollectsEveryError) {
  const auto json =
      nlohmann::json::parse(R"({"a": "x", "b": 11, "c": 1.5, "d": 18446744073709551615, "e": 1})");
  std::vector<std::string> errors;
  JsonFields fields(json, "f", errors);
  EXPECT_EQ(fields.Int("a", 7, 0, 10), 7);
  EXPECT_EQ(fields.Int("b", 7, 0, 10), 7);
  EXPECT_EQ(fields.Int("c", 7, 0, 10), 7);
  EXPECT_EQ(fields.Int("d", 7, -1, 10), 7);
  EXPECT_FALSE(fields.Bool("e", false));
  EXPECT_EQ(fields.RequiredInt("z", 1, 2), 1);
  EXPECT_THAT(errors, ElementsAre("f: a is \"x\", want an integer from 0 to 10",
                                  "f: b is 11, want an integer from 0 to 10",
                                  "f: c is 1.5, want an integer from 0 to 10",
                                  "f: d is 18446744073709551615, want an integer from -1 to 10",
                                  "f: e is 1, want true or false",
                                  "f: z is missing, want an integer from 1 to 2"));
}

TEST(JsonFields, TakesFallbackForAbsentAndNull) {
  const auto json = nlohmann::json::parse(R"({"a": null})");
  std::vector<std::string> errors;
  JsonFields fields(json, "f", errors);
  EXPECT_EQ(fields.Int("a", 5, 0, 9), 5);
  EXPECT_EQ(fields.Number("b", 0.5), 0.5);
  EXPECT_EQ(fields.String("c", "d"), "d");
  EXPECT_THAT(errors, IsEmpty());
}

}  // namespace
}  // namespace freshet
