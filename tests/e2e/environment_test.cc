// Jobs with environments, in one process.
#include <filesystem>

#include "tests/e2e/freshet_fixture.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::Gt;
using testing::HasSubstr;

// Guesses a number below ten. Each prompt is an episode with its own secret.
TinyJob GuessingJob() {
  TinyJob job = MakeTinyJob();
  job["model"] =
      "{init: random, config: {model_type: llama, hidden_size: 32, num_hidden_layers: 1, "
      "num_attention_heads: 2, intermediate_size: 64, max_position_embeddings: 32}}";
  job["tokenizer"] = "{type: char, alphabet: \"0123456789<>=!?\"}";
  job["dataset"] = "{type: template, prompt: \"{q}\", rows: [{q: \"?\"}]}";
  job["environment"] =
      "{type: guess_number, max_turns: 4, max_turn_tokens: 2, options: {max: \"10\"}}";
  job["rollout"] = "{max_new_tokens: 16}";
  job["reward"] = "{components: {found: {type: environment}}}";
  job["warmup"] = "";
  job["eval"] = "{every_steps: 2, rows: 1}";
  return job;
}

class EnvironmentTest : public FreshetFixture {};

TEST_F(EnvironmentTest, EpisodesAreTrainedOnWithEveryPromiseKept) {
  Train(GuessingJob());
  ExpectComplete(6);
  int64_t with_answers = 0;
  for (const Json& row : Rows("run/samples.jsonl")) {
    const double reward = row["reward"];
    EXPECT_TRUE(reward == 0 || reward == 1) << reward;
    EXPECT_EQ(row["components"]["found"], reward);
    const std::string text = row["completion"];
    with_answers += text.find_first_of("<>=!") == std::string::npos ? 0 : 1;
  }
  EXPECT_GT(with_answers, 0) << "the environment's answers are part of the sample";
  EXPECT_FALSE(Evaluations().empty());
}

TEST_F(EnvironmentTest, TheEnvironmentsTokensBearNoLoss) {
  Train(GuessingJob());
  for (const Json& row : Ledger("trained")) {
    int64_t tokens = 0;
    for (const Json& span : row["spans"]) {
      tokens += span["end"].get<int64_t>() - span["begin"].get<int64_t>();
    }
    EXPECT_LE(row["loss_tokens"].get<int64_t>(), tokens);
  }
  int64_t without_loss = 0;
  for (const auto& [step, row] : SurvivingSteps()) {
    const double all = row["completion_length_mean"].get<double>() * 8 * 4;
    without_loss += static_cast<int64_t>(all + 0.5) - row["tokens_trained"].get<int64_t>();
  }
  EXPECT_THAT(without_loss, Gt(0));
}

TEST_F(EnvironmentTest, ASynchronousRunRepeats) {
  TinyJob job = GuessingJob();
  job["staleness"] = "{max: 0}";
  Train(job);
  const std::map<int64_t, Json> first = SurvivingSteps();
  std::filesystem::remove_all(Path("run"));
  Train(job);
  const std::map<int64_t, Json> second = SurvivingSteps();
  ASSERT_EQ(first.size(), 6U);
  for (const auto& [step, row] : first) {
    for (const char* key : {"loss", "grad_norm", "reward_mean", "tokens_trained"}) {
      EXPECT_EQ(row[key], second.at(step)[key]) << key << " of step " << step;
    }
  }
}

TEST_F(EnvironmentTest, BadOptionsAreRefusedBeforeAnythingIsMade) {
  TinyJob job = GuessingJob();
  job["environment"] = "{type: guess_number, options: {max: many}}";
  WriteJob(job);
  const ChildResult result = Freshet({"local", "job.yaml", "--run-dir", "run"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("environment.options.max"), HasSubstr("many")));
  EXPECT_FALSE(Exists("run"));
}

}  // namespace
}  // namespace freshet
