// Runs that are killed at any point, repeatedly, and resumed.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "tests/e2e/freshet_fixture.h"

namespace freshet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSteps = 6;

class RecoveryTest : public FreshetFixture {
 protected:
  // Runs with `--crash-at POINT:HIT` and expects the process to die there.
  void RunToCrash(std::vector<std::string> args, const std::string& point, int hit) {
    const std::string at = point + ":" + std::to_string(hit);
    args.insert(args.end(), {"--crash-at", at});
    const ChildResult result = Freshet(std::move(args));
    EXPECT_EQ(result.signal, SIGKILL) << at << ", exit code " << result.exit_code << result.err;
    EXPECT_THAT(result.err,
                HasSubstr("crash at fault point " + point + ", hit " + std::to_string(hit)));
  }
  void StartAndCrash(const TinyJob& job, const std::string& point, int hit) {
    WriteJob(job);
    RunToCrash({"local", "job.yaml", "--run-dir", "run"}, point, hit);
  }
  // The largest step in the metrics. The last line may be torn.
  int64_t LastStep() const {
    int64_t last = 0;
    for (const std::string& line : Lines(folder_.Read("run/metrics.jsonl"))) {
      const Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (row.is_object()) last = std::max(last, row.value("step", int64_t{0}));
    }
    return last;
  }
  void Append(const std::string& name, const std::string& text) {
    std::ofstream(Path(name), std::ios::app | std::ios::binary) << text;
  }
};

struct CrashCase {
  const char* point;
  int hit;
  int64_t fork_version;  // version that the resume starts from; -1: depends on timing
};

void PrintTo(const CrashCase& crash, std::ostream* out) { *out << crash.point << ":" << crash.hit; }

std::string CaseName(const testing::TestParamInfo<CrashCase>& info) {
  return std::string(info.param.point) + "_" + std::to_string(info.param.hit);
}

class CrashPointTest : public RecoveryTest, public testing::WithParamInterface<CrashCase> {};

TEST_P(CrashPointTest, ResumesFromTheLastDurableCheckpoint) {
  const CrashCase& crash = GetParam();
  StartAndCrash(MakeTinyJob(), crash.point, crash.hit);
  const ChildResult resumed = Resume();
  EXPECT_EQ(resumed.err, "");
  ExpectComplete(kSteps);
  const std::vector<Json> rows = Ledger("resumed");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]["parent_lineage"], 0);
  EXPECT_EQ(rows[0]["lineage"], 1);
  if (crash.fork_version >= 0) {
    EXPECT_EQ(rows[0]["fork_version"], crash.fork_version);
  }
}

// Checkpoints are written at versions 0 (before the first step), 2, 4 and 6, and versions are
// published, in parallel to the following steps. At optimizer_step, commit and publish the last
// checkpoint may not be complete. It may be complete when version 6 is published.
INSTANTIATE_TEST_SUITE_P(
    EveryPoint, CrashPointTest,
    testing::Values(CrashCase{"optimizer_step", 1, -1}, CrashCase{"optimizer_step", 4, -1},
                    CrashCase{"optimizer_step", 6, -1}, CrashCase{"commit", 1, -1},
                    CrashCase{"commit", 3, -1}, CrashCase{"commit", 6, -1},
                    CrashCase{"publish", 2, -1}, CrashCase{"publish", 5, -1},
                    CrashCase{"checkpoint_write", 1, 0}, CrashCase{"checkpoint_write", 2, 0},
                    CrashCase{"checkpoint_write", 4, 4}, CrashCase{"checkpoint_rename", 1, 0},
                    CrashCase{"checkpoint_rename", 3, 2}, CrashCase{"checkpoint_rename", 4, 4},
                    CrashCase{"mark_durable", 1, 0}, CrashCase{"mark_durable", 2, 2},
                    CrashCase{"mark_durable", 3, 4}),
    CaseName);

// A step's row must be in metrics.jsonl before a checkpoint of the step can be resumed from.
TEST_F(RecoveryTest, NoRowIsMissingWhenTheCheckpointIsFasterThanTheEvaluation) {
  TinyJob job = MakeTinyJob();
  job["staleness"] = "{max: 0}";
  job["checkpoint"] = "{every_steps: 1}";
  job["eval"] = "{every_steps: 1, rows: 200}";
  StartAndCrash(job, "mark_durable", 3);
  Resume();
  ExpectComplete(kSteps);
}

TEST_F(RecoveryTest, AfterTheLastCheckpointTheEvaluationIsMadeUpFor) {
  TinyJob job = MakeTinyJob();
  job["eval"] = "{every_steps: 2, rows: 20, sets: [{name: one}, {name: two}]}";
  StartAndCrash(job, "mark_durable", 4);
  Resume();
  ExpectComplete(kSteps);
  std::vector<std::string> evaluated;
  for (const Json& row : Rows("run/metrics.jsonl")) {
    if (row.contains("eval_name") && row["policy_version"] == kSteps) {
      evaluated.push_back(row["eval_name"]);
    }
  }
  EXPECT_THAT(evaluated, ElementsAre("one", "two"));
  EXPECT_TRUE(std::filesystem::exists(Path("run/report.html")));
  const ChildResult again = Resume();
  EXPECT_THAT(again.out + again.err, HasSubstr("finished already"));
}

TEST_F(RecoveryTest, AfterTheLastCheckpointWithoutEvaluationOnlyTheReportIsMissing) {
  TinyJob job = MakeTinyJob();
  job.erase("eval");
  StartAndCrash(job, "mark_durable", 4);
  const ChildResult resumed = Resume();
  EXPECT_THAT(resumed.out + resumed.err, HasSubstr("finished already"));
  ExpectComplete(kSteps);
  EXPECT_TRUE(std::filesystem::exists(Path("run/report.html")));
}

TEST_F(RecoveryTest, AKillDuringTheWarmUpStartsAgain) {
  TinyJob job = MakeTinyJob();
  // Progress is first reported after 10 %; the rest takes longer than the kill can be delayed.
  job["warmup"] = "{sft: {steps: 5000, batch_size: 32, learning_rate: 2.0e-3}}";
  WriteJob(job);
  const auto process = Start({"local", "job.yaml", "--run-dir", "run"});
  ASSERT_TRUE(process->AwaitOutput("warm-up sft", absl::Minutes(1)));
  process->Signal(SIGKILL);
  EXPECT_EQ(process->Wait(absl::Seconds(30)).signal, SIGKILL);
  const ChildResult resumed = Freshet({"local", "--resume", "run", "--set", "warmup.sft.steps=20"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  ExpectComplete(kSteps);
  const std::vector<Json> rows = Ledger("resumed");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]["fork_version"], 0);
  EXPECT_EQ(rows[0]["checkpoint_sha256"], "");
}

// Seeded crash points instead of timers: the same points on every machine.
TEST_F(RecoveryTest, FiveCrashesInARow) {
  constexpr const char* kPoints[] = {"optimizer_step",    "commit",
                                     "publish",           "checkpoint_write",
                                     "checkpoint_rename", "mark_durable"};
  std::mt19937 random(20240607);
  TinyJob job = MakeTinyJob();
  job["trainer"] = "{steps: 14}";
  WriteJob(job);
  std::vector<std::string> args = {"local", "job.yaml", "--run-dir", "run"};
  for (int crash = 0; crash < 5; ++crash) {
    // Each process completes at most 2 more steps or checkpoints, so that 5 of them do not finish.
    RunToCrash(args, kPoints[random() % std::size(kPoints)], 1 + static_cast<int>(random() % 2));
    args = {"local", "--resume", "run"};
  }
  Resume();
  ExpectComplete(14);
  EXPECT_EQ(Ledger("resumed").size(), 5U);
}

// Without fault points: the kills hit the threads anywhere.
TEST_F(RecoveryTest, FiveKillsAtAnyMoment) {
  std::mt19937 random(20250309);
  TinyJob job = MakeTinyJob();
  job["trainer"] = "{steps: 1000000}";  // more than five processes can finish
  job["eval"] = "{every_steps: 25, rows: 20}";
  WriteJob(job);
  std::vector<std::string> args = {"local", "job.yaml", "--run-dir", "run"};
  for (int kill = 0; kill < 5; ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill));
    const auto process = Start(args);
    ASSERT_TRUE(process->AwaitOutput("\nstep ", absl::Seconds(60)));
    // Reads output for `delay` unless the process exits first.
    const auto delay = absl::Microseconds(static_cast<int64_t>(random() % 100'000));
    EXPECT_FALSE(process->AwaitOutput("never said", delay));
    process->Signal(SIGKILL);
    const ChildResult result = process->Wait(absl::Seconds(60));
    ASSERT_EQ(result.signal, SIGKILL) << "exit code " << result.exit_code << result.err;
    args = {"local", "--resume", "run"};
  }
  const int64_t last = LastStep() + 20;
  const ChildResult resumed =
      Freshet({"local", "--resume", "run", "--set", "trainer.steps=" + std::to_string(last)});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  ExpectComplete(last);
  const std::vector<Json> rows = Ledger("resumed");
  ASSERT_EQ(rows.size(), 5U);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(rows[static_cast<size_t>(i)]["lineage"], i + 1);
    EXPECT_LT(rows[static_cast<size_t>(i)]["fork_version"].get<int64_t>(), last);
  }
}

TEST_F(RecoveryTest, EveryModeSurvivesACrash) {
  for (const char* staleness : {"{max: 0}", "{max: 2, policy: drop}", "{max: 2, policy: requeue}",
                                "{max: 2, policy: mask}"}) {
    SCOPED_TRACE(staleness);
    std::filesystem::remove_all(Path("run"));
    TinyJob job = MakeTinyJob();
    job["staleness"] = staleness;
    StartAndCrash(job, "commit", 4);
    Resume();
    ExpectComplete(kSteps);
  }
}

TEST_F(RecoveryTest, TornLastLinesAreCut) {
  StartAndCrash(MakeTinyJob(), "commit", 4);
  Append("run/ledger.jsonl", R"({"seq":99999,"event":"trained","epo)");
  Append("run/metrics.jsonl", R"({"step":99,"policy_ver)");
  Append("run/samples.jsonl", R"({"step":99,"policy_ver)");
  Resume();
  ExpectComplete(kSteps);
  for (const char* name : {"run/ledger.jsonl", "run/metrics.jsonl", "run/samples.jsonl"}) {
    EXPECT_FALSE(Rows(name).empty()) << "every line is an object";
  }
}

TEST_F(RecoveryTest, HalfWrittenCheckpointsAreRemoved) {
  StartAndCrash(MakeTinyJob(), "checkpoint_write", 2);
  EXPECT_TRUE(Exists("run/checkpoints/.step-2.epoch-1.tmp"));
  Resume();
  EXPECT_FALSE(Exists("run/checkpoints/.step-2.epoch-1.tmp"));
}

TEST_F(RecoveryTest, ADamagedCheckpointIsPassedOverForTheOneBefore) {
  StartAndCrash(MakeTinyJob(), "commit", 6);
  const std::string newest = Exists("run/checkpoints/step-4") ? "step-4" : "step-2";
  Append("run/checkpoints/" + newest + "/model.safetensors", "x");
  const ChildResult resumed = Resume();
  EXPECT_THAT(resumed.err, HasSubstr("checkpoint_skipped"));
  const std::vector<Json> rows = Ledger("resumed");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_LT(rows[0]["fork_version"], newest == "step-4" ? 4 : 2);
  ExpectComplete(kSteps);
}

TEST_F(RecoveryTest, PromptsOfLostStepsComeAgain) {
  TinyJob job = MakeTinyJob();
  job["checkpoint"] = "{every_steps: 100}";
  StartAndCrash(job, "commit", 3);  // steps 1 to 3 exist in memory only
  Resume();
  ExpectComplete(kSteps);
  std::set<int64_t> lost, again;
  for (const Json& row : Ledger("trained")) {
    (row["lineage"] == 0 ? lost : again).insert(row["prompt"].get<int64_t>());
  }
  EXPECT_EQ(lost.size(), 3U * 8);
  EXPECT_EQ(again.size(), 6U * 8);
  EXPECT_TRUE(std::includes(again.begin(), again.end(), lost.begin(), lost.end()));
}

TEST_F(RecoveryTest, WallSecondsGoOnAfterAResume) {
  StartAndCrash(MakeTinyJob(), "commit", 5);
  double before = 0;
  for (const Json& row : Rows("run/metrics.jsonl")) {
    before = std::max(before, row["wall_seconds"].get<double>());
  }
  Resume();
  EXPECT_GT(SurvivingSteps().at(kSteps)["wall_seconds"].get<double>(), before);
}

}  // namespace
}  // namespace freshet
