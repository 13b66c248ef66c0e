#include "runlog/generated_row.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

using GeneratedJson = nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Le;
using testing::Not;

GeneratedRow Row() {
  GeneratedRow row;
  row.step = 12;
  row.uid = "job/95/0/3";
  row.policy_version = 8;
  row.prompt = "12+34=";
  row.completion = "046";
  row.reward = 0.5;
  row.components = {{"exact", 1}, {"length", -0.5}};
  row.outcome = "ok";
  row.finish = "stop";
  row.tokens = 4;
  row.attributes = {{"answer", "046"}, {"task", "sums"}};
  return row;
}

TEST(GeneratedRow, ALineHasTheSampleAndWhatItsRowSays) {
  EXPECT_EQ(ToLine(Row()),
            R"({"step":12,"uid":"job/95/0/3","prompt":"12+34=","completion":"046","reward":0.5,)"
            R"("components":{"exact":1.0,"length":-0.5},"outcome":"ok","finish":"stop","tokens":4,)"
            R"("policy_version":8,"attributes":{"answer":"046","task":"sums"}})"
            "\n");
}

TEST(GeneratedRow, ConversationsHaveTheirTurns) {
  GeneratedRow row = Row();
  row.turns = {{true, "[12+34]", 8}, {false, "46=", 3}, {true, "046", 4}};
  row.environment_reward = 1;
  const GeneratedJson json = GeneratedJson::parse(ToLine(row));
  EXPECT_EQ(json["turns"], GeneratedJson::parse(R"([{"role":"policy","text":"[12+34]","tokens":8},
      {"role":"environment","text":"46=","tokens":3},{"role":"policy","text":"046","tokens":4}])"));
  EXPECT_EQ(json["environment_reward"], 1.0);
}

TEST(GeneratedRow, TokenIdsAreAddedOnRequest) {
  GeneratedRow row = Row();
  row.ids = GeneratedIds{{1, 2}, {3, 4}, {-0.5F, -std::numeric_limits<float>::infinity()}};
  const GeneratedJson json = GeneratedJson::parse(ToLine(row));
  EXPECT_EQ(json["prompt_ids"], (std::vector<int>{1, 2}));
  EXPECT_EQ(json["completion_ids"], (std::vector<int>{3, 4}));
  EXPECT_EQ(json["logprobs"], (GeneratedJson{-0.5, nullptr}));
  EXPECT_FALSE(GeneratedJson::parse(ToLine(Row())).contains("prompt_ids"));
}

TEST(GeneratedRow, TextThatIsNotUtf8IsReplacedAndNumbersAreFiniteOrNull) {
  GeneratedRow row = Row();
  row.prompt = "a\xFFz\n";
  row.completion = std::string("\0\xC0\xAF", 3);
  row.attributes = {{"k\xFE", "v\xED\xA0\x80"}};
  row.reward = std::nan("");
  row.components = {{"exact", std::numeric_limits<double>::infinity()}};
  const std::string line = ToLine(row);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  const GeneratedJson json = GeneratedJson::parse(line);
  EXPECT_EQ(json["prompt"], "a\uFFFDz\n");
  EXPECT_THAT(json["completion"].get<std::string>(), EndsWith("\uFFFD"));
  EXPECT_TRUE(json["reward"].is_null());
  EXPECT_TRUE(json["components"]["exact"].is_null());
}

TEST(GeneratedRow, ARowThatIsTooLongKeepsItsNumbersAndTheBeginningOfItsTexts) {
  for (const bool in_text : {true, false}) {
    GeneratedRow row = Row();
    // A control character takes 6 bytes, so that neither text alone tells the size.
    const std::string long_text(kMaxGeneratedLine / 6 + 1, '\x01');
    if (in_text) {
      row.completion = "begins" + long_text;
      row.prompt = long_text;
      row.uid = std::string(100'000, 'u');
    } else {
      row.attributes["context"] = long_text;
    }
    const std::string line = ToLine(row);
    EXPECT_THAT(line.size(), Le(kMaxGeneratedLine));
    const GeneratedJson json = GeneratedJson::parse(line);
    EXPECT_EQ(json["truncated"], true);
    EXPECT_EQ(json["reward"], 0.5);
    EXPECT_EQ(json["components"]["exact"], 1.0);
    EXPECT_EQ(json["completion"].get<std::string>().substr(0, 6), in_text ? "begins" : "046");
  }
  EXPECT_THAT(ToLine(Row()), Not(HasSubstr("truncated")));
}

}  // namespace
}  // namespace freshet
