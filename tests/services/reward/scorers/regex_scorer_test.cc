#include "services/reward/scorers/regex_scorer.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/services/reward/scorers/scorer_case.h"

namespace freshet {
namespace {

using Match = RegexScorer::Match;

std::unique_ptr<RegexScorer> Regex(const std::string& pattern, Match match = Match::kSearch,
                                   bool ignore_case = false) {
  auto scorer = RegexScorer::Create(pattern, match, ignore_case);
  EXPECT_TRUE(scorer.ok()) << scorer.status();
  return *std::move(scorer);
}

TEST(RegexScorer, SearchesAnywhere) {
  const auto scorer = Regex("<a>\\d+</a>");
  EXPECT_EQ(ValueOf(*scorer, "so <a>42</a>."), 1);
  EXPECT_EQ(ValueOf(*scorer, "so <a></a>."), 0);
  EXPECT_EQ(ValueOf(*scorer, ""), 0);
}

TEST(RegexScorer, MatchesTheWholeCompletion) {
  const auto scorer = Regex("a|ab", Match::kWhole);
  EXPECT_EQ(ValueOf(*scorer, "ab"), 1);
  EXPECT_EQ(ValueOf(*scorer, "abc"), 0);
  EXPECT_EQ(ValueOf(*scorer, "ab\n"), 0);
  EXPECT_EQ(ValueOf(*scorer, " ab"), 0);
}

TEST(RegexScorer, IgnoresCaseWhenAsked) {
  EXPECT_EQ(ValueOf(*Regex("yes"), "YES"), 0);
  EXPECT_EQ(ValueOf(*Regex("yes", Match::kSearch, true), "YES"), 1);
}

TEST(RegexScorer, WorksOnUtf8Characters) { EXPECT_EQ(ValueOf(*Regex("^.$"), "\xC3\xA9"), 1); }

TEST(RegexScorer, InvalidUtf8MatchesNothing) {
  EXPECT_EQ(ValueOf(*Regex("^.$"), "\xFF"), 0);
  EXPECT_EQ(ValueOf(*Regex("ok"), "\xFF ok \xC3"), 1);
}

TEST(RegexScorer, ScoresACompletionWithANulByte) {
  EXPECT_EQ(ValueOf(*Regex("b$"), std::string("a\0b", 3)), 1);
}

TEST(RegexScorer, CatastrophicPatternEndsAsTimeOut) {
  const auto score = ScoreText(*Regex("^(a+)+$"), std::string(64, 'a') + "b");
  EXPECT_EQ(score.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(RegexScorer, ScanningPatternEndsAtTheTimeout) {
  // Few match attempts that each scan the whole completion: only the deadline stops the match.
  const std::string text(1 << 20, 'a');
  const Attributes none;
  const auto score =
      Regex("a.*b.*c|.*x")->Score(ScoreInput{text, 0, true, none, absl::Milliseconds(20)});
  EXPECT_EQ(score.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(RegexScorer, DeepRecursionEndsAsTimeOut) {
  const auto score = ScoreText(*Regex("^((?:a|b)(?1)?)$"), std::string(1 << 20, 'a'));
  EXPECT_EQ(score.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(RegexScorer, RefusesABadPatternWithItsPlace) {
  const auto scorer = RegexScorer::Create("ab(c", Match::kSearch, false);
  EXPECT_EQ(scorer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(scorer.status().message()), testing::HasSubstr("at byte 4"));
}

TEST(RegexScorer, RefusesHostilePatterns) {
  for (const std::string& pattern :
       {std::string(), std::string(70000, 'a'), std::string(2000, '(') + std::string(2000, ')'),
        std::string("\\C"), std::string("\xFF")}) {
    EXPECT_EQ(RegexScorer::Create(pattern, Match::kSearch, false).status().code(),
              absl::StatusCode::kInvalidArgument)
        << pattern.size();
  }
}

}  // namespace
}  // namespace freshet
