#include <fstream>
#include <string>

#include "base/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/services/reward/scorers/scorer_case.h"

namespace freshet {
namespace {

std::string WithoutCommas(std::string text) {
  std::erase(text, ',');
  return text;
}

// All test rows of GSM8K. Answers end with "#### N".
class Gsm8k : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(std::string(FRESHET_SOURCE_DIR) + "/../shared/data/gsm8k/test.jsonl");
    if (!file) GTEST_SKIP() << "the reference data set gsm8k is not on this machine";
    for (std::string line; std::getline(file, line);) {
      answers_.push_back(nlohmann::json::parse(line).at("answer").get<std::string>());
    }
    ASSERT_EQ(answers_.size(), 1319u);
  }

  std::vector<std::string> answers_;
  const std::unique_ptr<Scorer> scorer_ = MustMakeScorer(OptionsOfType("numeric"));
};

TEST_F(Gsm8k, GoldAnswersScoreOne) {
  for (const std::string& answer : answers_) {
    const std::string gold = answer.substr(answer.rfind("####") + 5);
    const Attributes row = {{"answer", answer}};
    EXPECT_EQ(ValueOf(*scorer_, answer, row), 1) << gold;
    EXPECT_EQ(ValueOf(*scorer_, StrCat("The answer is $", WithoutCommas(gold), ".00."), row), 1)
        << gold;
    EXPECT_EQ(ValueOf(*scorer_, StrCat("So \\boxed{", gold, "}."), row), 1) << gold;
  }
}

TEST_F(Gsm8k, PerturbedAnswersScoreZero) {
  for (const std::string& answer : answers_) {
    const std::string work = answer.substr(0, answer.rfind("####"));
    const long long gold = std::stoll(WithoutCommas(answer.substr(answer.rfind("####") + 5)));
    const Attributes row = {{"answer", answer}};
    // Off by one, with an extra digit, negated, and off by the smallest decimal.
    const std::string wrong[] = {StrCat(gold + 1), StrCat(gold - 1), StrCat(gold, "7"),
                                 StrCat(gold == 0 ? 1 : -gold), StrCat(gold, ".000001")};
    for (const std::string& number : wrong) {
      EXPECT_EQ(ValueOf(*scorer_, StrCat(work, "#### ", number), row), 0) << gold << " " << number;
    }
  }
}

}  // namespace
}  // namespace freshet
