// A newcomer's first run: its output, its files, and that it learns.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/e2e/freshet_fixture.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;
using testing::Pair;

class SmokeTest : public FreshetFixture {
 protected:
  double MeanReward(int64_t first, int64_t last) const {
    double sum = 0;
    const std::map<int64_t, Json> steps = SurvivingSteps();
    for (int64_t step = first; step <= last; ++step) {
      sum += steps.at(step)["reward_mean"].get<double>();
    }
    return sum / static_cast<double>(last - first + 1);
  }
};

TEST_F(SmokeTest, TheExampleLearns) {
  // After a short warm-up the policy starts at about 0.1, which leaves room to learn.
  const ChildResult result =
      Freshet({"local", std::string(FRESHET_SOURCE_DIR) + "/examples/smoke.yaml", "--run-dir",
               "run", "--set", "warmup.sft.steps=30", "--set", "trainer.steps=40", "--set",
               "eval.every_steps=10"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("step 40/40")) << "one line per step";
  ExpectComplete(40);
  EXPECT_GT(MeanReward(36, 40), MeanReward(1, 5) + 0.15);
  const std::vector<Json> evaluations = Evaluations();
  ASSERT_GE(evaluations.size(), 2U);
  EXPECT_GT(evaluations.back()["eval_accuracy"], evaluations.front()["eval_accuracy"]);
}

TEST_F(SmokeTest, TheRunFolderIsComplete) {
  Train(MakeTinyJob());
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(Path("run"))) {
    names.insert(entry.path().filename());
  }
  EXPECT_THAT(names, ElementsAre("checkpoints", "job.yaml", "ledger.jsonl", "metrics.jsonl",
                                 "report.html", "samples.jsonl"));
  names.clear();
  for (const auto& entry : std::filesystem::directory_iterator(Path("run/checkpoints/step-6"))) {
    names.insert(entry.path().filename());
  }
  for (const char* name :
       {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "optimizer.safetensors", "trainer_state.json", "manifest.json", "evaluation.json"}) {
    EXPECT_THAT(names, Contains(name));
  }
  const Json manifest = Json::parse(folder_.Read("run/checkpoints/step-6/manifest.json"));
  EXPECT_EQ(manifest["lineage"], 0);
  EXPECT_EQ(manifest["files"].size(), names.size() - 2) << "all but the manifest and the score";
  for (const Json& file : manifest["files"]) {
    const std::string path = "run/checkpoints/step-6/" + file["name"].get<std::string>();
    EXPECT_EQ(file["bytes"], std::filesystem::file_size(Path(path))) << path;
    EXPECT_EQ(file["sha256"].get<std::string>().size(), 64U) << path;
  }
}

TEST_F(SmokeTest, OlderCheckpointsArePruned) {
  TinyJob job = MakeTinyJob();
  job["checkpoint"] = "{every_steps: 1, keep_last: 3}";
  Train(job);
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(Path("run/checkpoints"))) {
    names.insert(entry.path().filename());
  }
  EXPECT_THAT(names, ElementsAre("step-4", "step-5", "step-6"));
}

TEST_F(SmokeTest, EveryStepHasItsRow) {
  Train(MakeTinyJob());
  const std::map<int64_t, Json> steps = SurvivingSteps();
  ASSERT_EQ(steps.size(), 6U);
  double wall = 0;
  for (const auto& [step, row] : steps) {
    EXPECT_EQ(row["policy_version"], step);
    EXPECT_LE(row["staleness_max"].get<int64_t>(), 1) << "the bound";
    int64_t tokens = 0;
    for (const auto& [age, count] : row["staleness_tokens"].items()) {
      EXPECT_THAT(std::stoll(age), AllOf(Ge(0), Le(1)));
      tokens += count.get<int64_t>();
    }
    EXPECT_EQ(row["tokens_trained"], tokens);
    EXPECT_GE(row["wall_seconds"].get<double>(), wall) << "cumulative";
    wall = row["wall_seconds"].get<double>();
  }
}

TEST_F(SmokeTest, VersionsAreEvaluatedAtTheStartOnTheWayAndAtTheEndOnEverySet) {
  TinyJob job = MakeTinyJob();
  job["staleness"] = "{max: 0}";  // never skips an evaluation that comes due
  job["trainer"] = "{steps: 5}";
  job["eval"] =
      "{every_steps: 2, rows: 20, sets: [{name: greedy}, {name: sampled, rows: 10, "
      "samples_per_prompt: 4, pass_at: [1, 4]}]}";
  Train(job);
  std::map<std::string, std::vector<int64_t>> versions;
  for (const Json& row : Evaluations()) {
    versions[row["eval_name"]].push_back(row["policy_version"].get<int64_t>());
    const double accuracy = row["eval_accuracy"].get<double>();
    EXPECT_THAT(accuracy, AllOf(Ge(0.0), Le(1.0)));
    EXPECT_GT(row["wall_seconds"].get<double>(), 0);
    if (row["eval_name"] == "greedy") {
      EXPECT_EQ(row["rows"], 20);
      EXPECT_TRUE(row["eval_pass_at"].empty());
      continue;
    }
    EXPECT_EQ(row["rows"], 10);
    EXPECT_EQ(row["samples_per_prompt"], 4);
    EXPECT_NEAR(row["eval_pass_at"]["1"].get<double>(), accuracy, 1e-9) << "the reward is 0 or 1";
    EXPECT_THAT(row["eval_pass_at"]["4"].get<double>(),
                AllOf(Ge(accuracy - 1e-9), Le(4 * accuracy + 1e-9)));
  }
  EXPECT_THAT(versions, ElementsAre(Pair("greedy", ElementsAre(0, 2, 4, 5)),
                                    Pair("sampled", ElementsAre(0, 2, 4, 5))));
}

TEST_F(SmokeTest, WallSecondsCountFromTheStartOfTheRun) {
  Train(MakeTinyJob());
  TinyJob longer = MakeTinyJob();
  longer["warmup"] = "{sft: {steps: 600, batch_size: 32, learning_rate: 1.0e-3}}";
  const double first = Evaluations().front()["wall_seconds"].get<double>();
  std::filesystem::remove_all(Path("run"));
  Train(longer);
  EXPECT_GT(Evaluations().front()["wall_seconds"].get<double>(), 2 * first)
      << "the warm-up takes most of the time";
}

TEST_F(SmokeTest, TheLedgerRecordsTheWholeHistory) {
  Train(MakeTinyJob());
  ExpectVerified();
  const std::vector<Json> rows = Rows("run/ledger.jsonl");
  const Json& open = rows.front();
  EXPECT_EQ(open["event"], "open");
  EXPECT_EQ(open["job"], "tiny");
  EXPECT_EQ(open["bound"], 1);
  EXPECT_EQ(open["disposition"], "wait");
  EXPECT_EQ(open["B"], 8);
  EXPECT_EQ(open["G"], 4);
  EXPECT_EQ(Ledger("trained").size(), 6U * 8 * 4);
  EXPECT_EQ(Ledger("dropped").size(), 0U);
  for (const Json& row : Ledger("trained")) {
    for (const char* key : {"seq", "event", "epoch", "lineage", "step", "train_version", "uid",
                            "prompt", "attempt", "sample", "redo", "loss_tokens", "masked_tokens",
                            "spans", "min_version", "max_version"}) {
      ASSERT_TRUE(row.contains(key)) << key;
    }
    EXPECT_LE(row["train_version"].get<int64_t>() - row["min_version"].get<int64_t>(), 1);
  }
  // Versions 0, 2, 4 and 6.
  EXPECT_EQ(Ledger("durable").size(), 4U);
}

TEST_F(SmokeTest, SamplesShowPromptsCompletionsAndRewards) {
  TinyJob job = MakeTinyJob();
  job["output"] = "{samples_per_step: 5}";
  Train(job);
  const std::vector<Json> rows = Rows("run/samples.jsonl");
  EXPECT_EQ(rows.size(), 6U * 5);
  for (const Json& row : rows) {
    EXPECT_EQ(row["prompt"].get<std::string>().size(), 4U);
    EXPECT_LE(row["completion"].get<std::string>().size(), 4U);
    EXPECT_EQ(row["reward"], row["components"]["exact"]);
    EXPECT_FALSE(row["spans"].empty());
  }
}

TEST_F(SmokeTest, AGroupsAdvantagesFollowItsRewards) {
  TinyJob job = MakeTinyJob();
  job["output"] = "{samples_per_step: 32}";  // all samples: 8 groups of 4
  Train(job);
  const std::vector<Json> rows = Rows("run/samples.jsonl");
  ASSERT_EQ(rows.size(), 6U * 32);
  int64_t groups_with_signal = 0;
  for (size_t begin = 0; begin < rows.size(); begin += 4) {
    double rewards = 0, advantages = 0, largest = 0;
    for (size_t i = begin; i < begin + 4; ++i) {
      rewards += rows[i]["reward"].get<double>();
      const double advantage = rows[i]["advantage"];
      advantages += advantage;
      largest = std::max(largest, std::abs(advantage));
    }
    EXPECT_NEAR(advantages, 0, 1e-6);
    for (size_t i = begin; i < begin + 4; ++i) {
      const double above_mean = rows[i]["reward"].get<double>() - rewards / 4;
      EXPECT_EQ(rows[i]["advantage"].get<double>() > 0, above_mean > 0);
    }
    groups_with_signal += largest > 0 ? 1 : 0;
  }
  EXPECT_GT(groups_with_signal, 0);
}

TEST_F(SmokeTest, TheReportIsOneSelfContainedPage) {
  Train(MakeTinyJob());
  const std::string report = folder_.Read("run/report.html");
  EXPECT_THAT(report, AllOf(HasSubstr("<html"), HasSubstr("\"name\":\"tiny\"")));
  EXPECT_THAT(report, testing::Not(testing::ContainsRegex("(src|href) *= *\"https?:")));
  std::filesystem::remove(Path("run/report.html"));
  EXPECT_EQ(Freshet({"report", "run"}).exit_code, 0);
  EXPECT_EQ(folder_.Read("run/report.html"), report) << "made from the folder alone";
}

TEST_F(SmokeTest, JsonGivesObjectsOnlyAndPeopleReadStderr) {
  const ChildResult result = Train(MakeTinyJob(), {"--json"});
  std::vector<Json> rows;
  for (const std::string& line : Lines(result.out)) {
    const Json row = Json::parse(line, nullptr, false);
    ASSERT_TRUE(row.is_object()) << line;
    if (!row.contains("event")) rows.push_back(row);
  }
  EXPECT_EQ(rows, Rows("run/metrics.jsonl"));
  EXPECT_THAT(result.err, AllOf(HasSubstr("step 6/6"), HasSubstr("finished")));
}

TEST_F(SmokeTest, WithoutATerminalLinesArePlain) {
  const ChildResult result = Train(MakeTinyJob());
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, testing::Not(HasSubstr("\x1b")));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("\r")));
}

TEST_F(SmokeTest, TheFolderIsNamedAfterTheJobByDefault) {
  TinyJob job = MakeTinyJob();
  job["trainer"] = "{steps: 1}";
  WriteJob(job);
  EXPECT_EQ(Freshet({"local", "job.yaml"}).exit_code, 0);
  EXPECT_TRUE(Exists("runs/tiny/checkpoints/step-1"));
}

TEST_F(SmokeTest, TheRecordedJobIsResolvedAndRunsAgain) {
  TinyJob job = MakeTinyJob();
  job["trainer"] = "{steps: 1}";
  Train(job, {"--set", "optimizer.beta1=0.8"});
  const std::string resolved = folder_.Read("run/job.yaml");
  EXPECT_THAT(resolved, AllOf(HasSubstr("beta1: 0.8"), HasSubstr("lease_ttl_ms:")));
  EXPECT_EQ(Freshet({"validate", "run/job.yaml"}).exit_code, 0);
  EXPECT_EQ(Freshet({"local", "run/job.yaml", "--run-dir", "again"}).exit_code, 0);
  EXPECT_EQ(folder_.Read("again/job.yaml"), resolved);
}

}  // namespace
}  // namespace freshet
