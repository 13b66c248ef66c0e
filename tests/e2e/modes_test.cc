// One short run per choice in a job file; each must finish with a valid ledger.
#include <filesystem>

#include "tests/e2e/freshet_fixture.h"
#include "tests/testing/model_directory.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

struct Mode {
  const char* name;
  TinyJob keys;
};
void PrintTo(const Mode& mode, std::ostream* out) { *out << mode.name; }
std::string ModeName(const testing::TestParamInfo<Mode>& info) { return info.param.name; }

class ModeTest : public FreshetFixture, public testing::WithParamInterface<Mode> {};

TEST_P(ModeTest, FinishesWithEveryPromiseKept) {
  TinyJob job = MakeTinyJob();
  job["trainer"] = "{steps: 4}";
  job["eval"] = "";
  for (const auto& [key, value] : GetParam().keys) job[key] = value;
  Train(job);
  ExpectComplete(4);
  for (const auto& [step, row] : SurvivingSteps()) {
    for (const char* key : {"loss", "grad_norm", "entropy", "kl_behavior", "reward_mean"}) {
      EXPECT_TRUE(row[key].is_number()) << key << " of step " << step << " is not finite";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Staleness, ModeTest,
    testing::Values(Mode{"wait_0", {{"staleness", "{max: 0}"}}},
                    Mode{"wait_2", {{"staleness", "{max: 2}"}}},
                    Mode{"wait_4", {{"staleness", "{max: 4}"}}},
                    Mode{"drop_1", {{"staleness", "{max: 1, policy: drop}"}}},
                    Mode{"drop_2", {{"staleness", "{max: 2, policy: drop}"}}},
                    Mode{"drop_4", {{"staleness", "{max: 4, policy: drop}"}}},
                    Mode{"requeue_1", {{"staleness", "{max: 1, policy: requeue}"}}},
                    Mode{"requeue_2", {{"staleness", "{max: 2, policy: requeue}"}}},
                    Mode{"requeue_4", {{"staleness", "{max: 4, policy: requeue}"}}},
                    Mode{"mask_1", {{"staleness", "{max: 1, policy: mask}"}}},
                    Mode{"mask_2", {{"staleness", "{max: 2, policy: mask}"}}},
                    Mode{"mask_4", {{"staleness", "{max: 4, policy: mask}"}}}),
    ModeName);

INSTANTIATE_TEST_SUITE_P(Loss, ModeTest,
                         testing::Values(Mode{"grpo", {{"loss", "{preset: grpo}"}}},
                                         Mode{"dr_grpo", {{"loss", "{preset: dr_grpo}"}}},
                                         Mode{"dapo", {{"loss", "{preset: dapo}"}}},
                                         Mode{"rloo", {{"loss", "{preset: rloo}"}}},
                                         Mode{"reinforce_pp", {{"loss", "{preset: reinforce_pp}"}}},
                                         Mode{"gspo", {{"loss", "{preset: gspo}"}}},
                                         Mode{"cispo", {{"loss", "{preset: cispo}"}}},
                                         Mode{"decoupled_ppo",
                                              {{"loss", "{preset: decoupled_ppo}"}}},
                                         Mode{"icepop", {{"loss", "{preset: icepop}"}}}),
                         ModeName);

INSTANTIATE_TEST_SUITE_P(
    Trainer, ModeTest,
    testing::Values(
        Mode{"minibatches", {{"trainer", "{steps: 4, minibatches_per_step: 2}"}}},
        Mode{"microbatches", {{"trainer", "{steps: 4, max_tokens_per_microbatch: 16}"}}},
        Mode{"cosine",
             {{"optimizer",
               "{learning_rate: 1.0e-3, schedule: cosine, warmup_steps: 2, weight_decay: 0.1}"}}},
        Mode{"recompute", {{"weight_sync", "{kv: recompute}"}, {"staleness", "{max: 2}"}}},
        Mode{"rare_publication", {{"weight_sync", "{every_steps: 2}"}, {"staleness", "{max: 2}"}}},
        Mode{"truncated_sampling", {{"rollout", "{max_new_tokens: 4, top_p: 0.9, top_k: 5}"}}},
        Mode{"few_sequences",
             {{"rollout",
               "{max_new_tokens: 4, max_sequences: 5, max_inflight_groups: 3, "
               "max_batch_tokens: 7}"}}},
        Mode{"no_warm_up", {{"warmup", ""}}},
        Mode{"one_checkpoint", {{"checkpoint", "{every_steps: 0}"}}},
        Mode{"one_sample", {{"group_size", "1"}, {"loss", "{preset: reinforce_pp}"}}}),
    ModeName);

class ModesTest : public FreshetFixture {};

TEST_F(ModesTest, Bf16) {
  TinyJob job = MakeTinyJob();
  job["model"].insert(1, "dtype: bf16, ");
  job["staleness"] = "{max: 0}";
  Train(job);
  ExpectComplete(6);
  for (const auto& [step, row] : SurvivingSteps()) {
    EXPECT_LT(row["kl_behavior"].get<double>(), 0.01) << "engine and trainer agree";
  }
}

TEST_F(ModesTest, ReferencePolicyOutlivesAResume) {
  TinyJob job = MakeTinyJob();
  job["loss"] = "{preset: grpo, kl: {kind: k3, coef: 0.05}}";
  job["checkpoint"] = "{every_steps: 1, keep_last: 1}";
  job["staleness"] = "{max: 0}";
  Train(job);
  ExpectComplete(6);
  EXPECT_TRUE(Exists("run/checkpoints/step-0")) << "the reference";
  const std::map<int64_t, Json> whole = SurvivingSteps();
  EXPECT_EQ(whole.at(1)["kl_ref"], 0.0);
  EXPECT_GT(whole.at(6)["kl_ref"], 0.0);

  std::filesystem::remove_all(Path("run"));
  const ChildResult crashed =
      Freshet({"local", "job.yaml", "--run-dir", "run", "--crash-at", "mark_durable:4"});
  EXPECT_NE(crashed.signal, 0);
  Resume();
  ExpectComplete(6);
  EXPECT_GT(SurvivingSteps().at(6)["kl_ref"], 0.0);
}

TEST_F(ModesTest, GroupsWithoutSignalAreFiltered) {
  TinyJob job = MakeTinyJob();
  job["filter"] = "{zero_variance: true, max_filtered_in_a_row: 100000}";
  Train(job);
  ExpectComplete(6);
  int64_t filtered = 0;
  for (const auto& [step, row] : SurvivingSteps()) {
    filtered += row["groups_filtered"].get<int64_t>();
    EXPECT_GT(row["reward_std"].get<double>(), 0);
  }
  EXPECT_GT(filtered, 0);
  EXPECT_GE(static_cast<int64_t>(Ledger("filtered").size()), filtered * 4);
}

TEST_F(ModesTest, AJobThatFiltersEverythingStopsWithTheReason) {
  TinyJob job = MakeTinyJob();
  job["filter"] = "{zero_variance: true}";
  job["reward"] = "{components: {same: {type: length, max_tokens: 100}}}";
  WriteJob(job);
  const ChildResult result = Freshet({"local", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, AllOf(HasSubstr("groups were filtered"), HasSubstr("rewards")));
  ExpectVerified();
}

TEST_F(ModesTest, AScorerThatAlwaysFailsStopsTheJobWithTheReason) {
  TinyJob job = MakeTinyJob();
  job["reward"] = "{components: {broken: {type: regex, pattern: '((?1)x|y)'}}}";  // never ends
  job["eval"] = "";
  WriteJob(job);
  const ChildResult result = Freshet({"local", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.exit_code, 5);
  const std::vector<std::string> lines = Lines(result.err);
  ASSERT_FALSE(lines.empty());
  // Which of the two is noticed first depends on the threads.
  EXPECT_THAT(lines.back(), AnyOf(HasSubstr("none could be scored"), HasSubstr("always fails")));
  EXPECT_THAT(lines.back(), AllOf(HasSubstr("infra_error"), HasSubstr("component broken")));
  EXPECT_THAT(result.out, AllOf(HasSubstr("failed"), HasSubstr("--resume run")));
  EXPECT_TRUE(SurvivingSteps().empty()) << "never a reward of 0";
  ExpectVerified();
}

TEST_F(ModesTest, NumbersThatOverflowStopTheJob) {
  ModelDirectory model;
  for (float& value : model.tensors["lm_head.weight"].values) value *= 1e38F;
  model.Write(Path("model"));
  TinyJob job = MakeTinyJob();
  job["model"] = "{path: model}";
  job["tokenizer"] = "";
  job["warmup"] = "";
  job["eval"] = "";
  WriteJob(job);
  const ChildResult result = Freshet({"local", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, HasSubstr("finite"));
  EXPECT_TRUE(SurvivingSteps().empty());
  ExpectVerified();
}

TEST_F(ModesTest, JsonLinesWithAnEvaluationFile) {
  std::string rows;
  for (int i = 100; i < 140; ++i) {
    rows += "{\"problem\": \"" + std::to_string(i) + "\", \"solution\": \"#### " +
            std::to_string(i) + "\"}\n";
  }
  folder_.Write("train.jsonl", rows);
  folder_.Write("test.jsonl", rows.substr(0, rows.find('\n') + 1));
  TinyJob job = MakeTinyJob();
  job["dataset"] =
      "{type: jsonl, path: train.jsonl, eval_path: test.jsonl, prompt: \"{question}=\", "
      "answer: answer}";  // not the default names problem and solution
  job["reward"] = "{components: {number: {type: numeric}}}";
  job["warmup"] = "";
  job["trainer"] = "{steps: 3}";
  Train(job);
  ExpectComplete(3);
  EXPECT_EQ(Evaluations().back()["rows"], 1);
}

TEST_F(ModesTest, TemplateRowsAndSeveralRewards) {
  TinyJob job = MakeTinyJob();
  job["dataset"] =
      "{type: template, prompt: \"{a}{b}=\", rows: [{a: 1, b: 2}, {a: 3, b: 4}, {a: 5, b: 6}]}";
  job["reward"] =
      "{components: {has: {type: contains, text: \"{a}\", weight: 0.5}, "
      "form: {type: regex, pattern: '^[0-9]*$', weight: 0.25}, "
      "short: {type: length, max_tokens: 3, margin_tokens: 1, weight: 0.25}}}";
  job["warmup"] = "";
  Train(job);
  ExpectComplete(6);
  for (const auto& [step, row] : SurvivingSteps()) {
    const Json& parts = row["reward_components"];
    ASSERT_EQ(parts.size(), 3U);
    const double sum = 0.5 * parts["has"].get<double>() + 0.25 * parts["form"].get<double>() +
                       0.25 * parts["short"].get<double>();
    EXPECT_NEAR(row["reward_mean"].get<double>(), sum, 1e-9);
  }
}

TEST_F(ModesTest, ATrainedModelIsAModelToTrain) {
  ModelDirectory().Write(Path("model"));
  TinyJob job = MakeTinyJob();
  job["model"] = "{path: model}";
  job["tokenizer"] = "";
  job["trainer"] = "{steps: 1}";
  Train(job);
  std::filesystem::rename(Path("run"), Path("first"));
  job["model"] = "{path: first/checkpoints/step-1}";
  Train(job);
  ExpectComplete(1);
}

}  // namespace
}  // namespace freshet
