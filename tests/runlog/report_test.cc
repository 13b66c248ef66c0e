#include "runlog/report.h"

#include <cmath>
#include <string>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "runlog/metrics_log.h"
#include "runlog/samples_log.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHostile[] = "</script><script>alert(1)</script><!--\"'\xE2\x80\xA8{script}\n";

StepMetrics Step(int64_t step, double reward = 0.5) {
  StepMetrics m;
  m.step = step;
  m.policy_version = step;
  m.reward_mean = reward;
  return m;
}

SampleRow Sample(int64_t step, const std::string& completion) {
  SampleRow row;
  row.step = step;
  row.completion = completion;
  return row;
}

// Writes the report; returns its embedded JSON. tests/status_page covers the script.
nlohmann::json Reported(const ScratchFolder& folder) {
  EXPECT_TRUE(WriteReport(folder.path()).ok());
  const std::string page = folder.Read("report.html");
  const std::string begin = "<script type=\"application/json\" id=\"run\">";
  const size_t at = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
}

TEST(WriteReport, HoldsTheJobTheRowsAndTheFirstAndLastSamples) {
  const ScratchFolder folder;
  folder.Write("job.yaml",
               "name: arithmetic\ngroup_size: 8\nprompts_per_step: 64\n"
               "staleness: {max: 2, policy: wait}\ntrainer: {steps: 140}\n");
  EvalMetrics eval;
  eval.eval_name = "heldout";
  folder.Write("metrics.jsonl", ToJson(eval) + "\n" + ToJson(Step(1)) + "\n{\"step\":");
  std::string samples;
  for (int64_t step = 1; step <= 20; ++step) samples += ToJson(Sample(step, "046")) + "\n";
  folder.Write("samples.jsonl", samples);
  nlohmann::json run = Reported(folder);
  EXPECT_EQ(run["job"]["yaml"], folder.Read("job.yaml"));
  run["job"].erase("yaml");
  EXPECT_EQ(run["job"], nlohmann::json::parse(R"({"name":"arithmetic","steps":140,
      "staleness_max":2,"staleness_policy":"wait","group_size":8,"prompts_per_step":64})"));
  ASSERT_EQ(run["rows"].size(), 2U);
  EXPECT_EQ(run["rows"][0].dump(), nlohmann::json::parse(ToJson(Step(1))).dump());
  EXPECT_EQ(run["rows"][1]["eval_name"], "heldout");
  ASSERT_EQ(run["samples"].size(), 13U);
  EXPECT_EQ(run["samples"][4]["step"], 5);
  EXPECT_EQ(run["samples"][5]["step"], 13);
  EXPECT_EQ(run["samples"][12]["truncated"], false);
}

TEST(WriteReport, KeepsHostileTextsInsideItsData) {
  const ScratchFolder folder;
  folder.Write("job.yaml", StrCat("name: young\n# \xff", kHostile));
  StepMetrics step = Step(1);
  step.reward_components = {{kHostile, 1}};
  folder.Write("metrics.jsonl", ToJson(step) + "\n");
  folder.Write("samples.jsonl", ToJson(Sample(1, StrCat(kHostile, "\xff"))) + "\n");
  const nlohmann::json run = Reported(folder);
  EXPECT_EQ(run["samples"][0]["completion"], StrCat(kHostile, "\xEF\xBF\xBD"));
  EXPECT_EQ(run["job"]["yaml"], StrCat("name: young\n# \xEF\xBF\xBD", kHostile));
  EXPECT_TRUE(run["rows"][0]["reward_components"].contains(kHostile));
  const std::string page = folder.Read("report.html");
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("<!--")));
}

TEST(WriteReport, AllowsItsOwnScriptAndStyleAndNoRequests) {
  const ScratchFolder folder;
  folder.Write("job.yaml", "name: young\n");
  ASSERT_TRUE(WriteReport(folder.path()).ok());
  const std::string page = folder.Read("report.html");
  EXPECT_THAT(page, ContainsRegex("default-src 'none'; script-src 'sha256-[^' ]{44}'; "
                                  "style-src 'sha256-[^' ]{44}'; img-src data:; base-uri 'none'"));
  for (const char* part : {"src=", "url(", "@import", "{run}", "{script}", "{style}"}) {
    EXPECT_THAT(page, Not(HasSubstr(part)));
  }
}

TEST(WriteReport, ShowsTheSurvivingLineage) {
  const ScratchFolder folder;
  StepMetrics again = Step(2, 0.75);
  again.lineage = 1;
  folder.Write("metrics.jsonl",
               ToJson(Step(1)) + "\n" + ToJson(Step(2, NAN)) + "\n" + ToJson(again) + "\n");
  const nlohmann::json rows = Reported(folder)["rows"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1]["reward_mean"], 0.75);
}

TEST(WriteReport, SaysWhatIsWrong) {
  const ScratchFolder folder;
  EXPECT_TRUE(absl::IsNotFound(WriteReport(folder.path())));
  folder.Write("metrics.jsonl", "nonsense\n");
  const absl::Status status = WriteReport(folder.path());
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("metrics.jsonl:1:"));
  EXPECT_EQ(folder.Read("report.html"), "");
}

}  // namespace
}  // namespace freshet
