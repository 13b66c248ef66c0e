#include "base/text_template.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace freshet {
namespace {

std::string Render(const std::string& text, const std::map<std::string, std::string>& values) {
  const absl::StatusOr<TextTemplate> parsed = TextTemplate::Parse(text);
  if (!parsed.ok()) return parsed.status().ToString();
  const absl::StatusOr<std::string> result = parsed->Render(values);
  return result.ok() ? *result : result.status().ToString();
}

TEST(TextTemplate, RendersFieldsBracesAndQuotedFields) {
  const struct {
    const char* text;
    const char* want;
  } cases[] = {
      {"", ""},
      {"plain", "plain"},
      {"{a}", "1"},
      {"{a}{b}{a}", "121"},
      {"<{a}>", "<1>"},
      {"{{a}}", "{a}"},
      {"{{a}} {a}", "{a} 1"},
      {"{{a}", "{1"},
      {"{a}}", "1}"},
      {"\\boxed{}", "\\boxed{}"},
      {"{ a }", "{ a }"},
      {"{9a}", "{9a}"},
      {"{a", "{a"},
      {"}", "}"},
      {"{", "{"},
      {"{{", "{{"},
      {"{\"k\": {\"j\": {a}}}", "{\"k\": {\"j\": 1}}"},
  };
  for (const auto& c : cases) EXPECT_EQ(Render(c.text, {{"a", "1"}, {"b", "2"}}), c.want) << c.text;
}

TEST(TextTemplate, InsertsValuesWithoutExpandingThem) {
  EXPECT_EQ(Render("{a}", {{"a", "{b}"}, {"b", "2"}}), "{b}");
}

TEST(TextTemplate, ListsDistinctFieldsInOrder) {
  const auto parsed = TextTemplate::Parse("{b} {a} {b} {{c}} {d_1}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(parsed->fields(), testing::ElementsAre("b", "a", "d_1"));
}

TEST(TextTemplate, NamesTheMissingField) {
  const auto parsed = TextTemplate::Parse("{a} {zz}");
  ASSERT_TRUE(parsed.ok());
  const auto result = parsed->Render({{"a", "1"}});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(result.status().message()), testing::HasSubstr("'zz'"));
}

TEST(TextTemplate, RefusesTextBeyondItsBound) {
  EXPECT_TRUE(TextTemplate::Parse(std::string(1 << 20, '{')).ok());
  EXPECT_EQ(TextTemplate::Parse(std::string((1 << 20) + 1, 'x')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace freshet
