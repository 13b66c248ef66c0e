#include "rollout/service/evaluation_report.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/char_tokenizer.h"

namespace freshet {
namespace {

using cluster::v1::ReportEvaluationRequest;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

Response ResponseOf(const Tokenizer& tokenizer, const std::string& text) {
  Response response;
  response.response_ids = *tokenizer.Encode(text);
  response.finish = FinishReason::kStop;
  response.env_reward = 0.5;
  return response;
}

TEST(EvaluationReport, NamesRowsWithoutAResponse) {
  const auto tokenizer = *CreateCharTokenizer("ab");
  const EvaluationAnswers answers = {ResponseOf(*tokenizer, "ab"),
                                     absl::InternalError(std::string(1000, 'x')),
                                     ResponseOf(*tokenizer, "b")};
  ReportEvaluationRequest report;
  AddAnswers(answers, *tokenizer, /*episodes=*/true, report);
  EXPECT_THAT(report.completions(), ElementsAre("ab", "", "b"));
  EXPECT_THAT(report.completion_tokens(), ElementsAre(2, 0, 1));
  EXPECT_THAT(report.stopped(), ElementsAre(true, false, true));
  EXPECT_THAT(report.env_rewards(), ElementsAre(0.5, 0, 0.5));
  EXPECT_THAT(report.failed_rows(), UnorderedElementsAre(Pair(1, std::string(200, 'x'))));
  EXPECT_EQ(report.error(), "");
}

// The receiver rejects strings that are not valid UTF-8.
TEST(EvaluationReport, AReasonIsCutBetweenTwoCharacters) {
  const auto tokenizer = *CreateCharTokenizer("ab");
  const EvaluationAnswers answers = {
      absl::InternalError(std::string(199, 'x') + "\xc3\xa9"),
      absl::InternalError("\xff"),
  };
  ReportEvaluationRequest report;
  AddAnswers(answers, *tokenizer, /*episodes=*/false, report);
  EXPECT_THAT(report.failed_rows(),
              UnorderedElementsAre(Pair(0, std::string(199, 'x')), Pair(1, "?")));
}

TEST(EvaluationReport, WithoutAnyResponseTheTryHasFailed) {
  const auto tokenizer = *CreateCharTokenizer("ab");
  const EvaluationAnswers answers(2, absl::UnavailableError("the environment is gone"));
  ReportEvaluationRequest report;
  AddAnswers(answers, *tokenizer, /*episodes=*/false, report);
  EXPECT_EQ(report.error(), "none of 2 rows could be generated; row 0: the environment is gone");
  EXPECT_THAT(report.env_rewards(), IsEmpty());
}

}  // namespace
}  // namespace freshet
