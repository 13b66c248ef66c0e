// Templates that exceed their time or memory, in a process of their own: threads that exceed their
// memory stay parked.

#include <cstdlib>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/freshet_text.h"
#include "text/rust_result.h"
#include "text/tokenizer.h"

namespace freshet {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kGuard = absl::Seconds(60);
constexpr char kEndless[] =
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
constexpr char kGreedy[] =
    "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}"
    "{% endfor %}";

struct Outcome {
  bool busy = false;
  std::string text;  // or error
};

Outcome Render(const std::string& source, uint64_t fuel, uint64_t timeout_ms) {
  FreshetTemplate* parsed = nullptr;
  FreshetBytes error = {};
  if (!freshet_template_parse(Data(source), source.size(), &parsed, &error)) {
    return {true, Take(error)};
  }
  const FreshetRenderOptions options = {false, 0, fuel, 1 << 20, 8 << 20, timeout_ms};
  Outcome outcome;
  FreshetBytes out = {};
  const bool ok =
      freshet_template_render(parsed, Data("{}"), 2, options, &outcome.busy, &out, &error);
  outcome.text = Take(ok ? out : error);
  freshet_template_free(parsed);
  return outcome;
}

// A template that is late ends later, and then counts no longer.
TEST(TemplateBounds, LateTemplatesCountUntilTheyEnd) {
  const absl::Time deadline = absl::Now() + kGuard;
  uint64_t fuel = 1 << 16;
  for (int late = 0; late < 8 && absl::Now() < deadline;) {
    const Outcome outcome = Render(kEndless, fuel, /*timeout_ms=*/1);
    if (outcome.busy) {
      std::this_thread::yield();
    } else if (outcome.text.find("takes longer than") != std::string::npos) {
      ++late;
    } else {
      fuel *= 2;  // it was in time
    }
  }
  while (freshet_template_busy() && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_LT(absl::Now(), deadline);
  EXPECT_FALSE(freshet_template_busy());
}

void ParkTemplatesUntilChatsAreUnavailable() {
  const auto tokenizer = ParseTokenizer(
      {{"tokenizer.json",
        R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": []})"},
       {"chat_template.jinja", "a"}},
      "dir");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_TRUE((*tokenizer)->EncodeChat({}).ok());
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE((*tokenizer)->ChatAvailable()) << i;
    EXPECT_THAT(Render(kGreedy, 1 << 20, /*timeout_ms=*/60'000).text, HasSubstr("more than 8 MiB"));
  }
  EXPECT_FALSE((*tokenizer)->ChatAvailable());
  EXPECT_EQ((*tokenizer)->EncodeChat({}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ((*tokenizer)->RenderChat({}).status().code(), absl::StatusCode::kUnavailable);
}

// In a process of its own, where no late template of another test counts.
TEST(TemplateBoundsDeathTest, TooManyParkedTemplatesMakeChatsUnavailable) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ParkTemplatesUntilChatsAreUnavailable();
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace freshet
