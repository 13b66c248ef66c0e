// Jobs that generate data and train nothing.
#include <csignal>
#include <filesystem>
#include <set>

#include "tests/e2e/freshet_fixture.h"

namespace freshet {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

constexpr size_t kFiles = 6;
constexpr size_t kSamples = 8 * 4;  // of a step

class GenerateTest : public FreshetFixture {
 protected:
  static TinyJob Job() {
    TinyJob job = MakeTinyJob();
    job["kind"] = "generate";
    for (const char* block : {"loss", "warmup", "optimizer", "eval", "staleness"}) job[block] = "";
    return job;
  }
  std::vector<Json> Step(size_t step) const {
    return Rows("run/generated/step-0000000" + std::to_string(step) + ".jsonl");
  }
  // Expects that the files have each sample of the surviving ledger once. Returns their rows.
  std::vector<Json> ExpectEverySample() {
    ExpectComplete(kFiles);
    std::vector<Json> rows;
    std::set<std::string> uids, prompts;
    for (size_t step = 1; step <= kFiles; ++step) {
      const std::vector<Json> of_step = Step(step);
      EXPECT_THAT(of_step, SizeIs(kSamples));
      for (const Json& row : of_step) {
        EXPECT_EQ(row["step"], step);
        const std::string uid = row["uid"];
        EXPECT_TRUE(uids.insert(uid).second) << uid;
        prompts.insert(uid.substr(0, uid.find('/', uid.find('/') + 1)));
        rows.push_back(row);
      }
    }
    EXPECT_THAT(prompts, SizeIs(kFiles * 8)) << "no prompt twice";
    std::set<std::string> trained;
    for (const Json& row : Ledger("trained")) trained.insert(row["uid"]);
    for (const std::string& uid : uids) EXPECT_THAT(trained, Contains(uid));
    return rows;
  }
};

TEST_F(GenerateTest, EverySampleIsInItsStepsFile) {
  const ChildResult result = Train(Job(), {"--set", "output.token_ids=true"});
  EXPECT_THAT(result.out, Not(HasSubstr("AdamW")));
  for (const Json& row : ExpectEverySample()) {
    EXPECT_EQ(row["prompt"].get<std::string>().size(), 4U);
    EXPECT_EQ(row["attributes"]["answer"].get<std::string>() + "=", row["prompt"]);
    EXPECT_EQ(row["reward"], row["components"]["exact"]);
    EXPECT_EQ(row["outcome"], "ok");
    EXPECT_EQ(row["completion_ids"].size(), row["tokens"].get<size_t>());
    EXPECT_EQ(row["logprobs"].size(), row["tokens"].get<size_t>());
    EXPECT_EQ(row["prompt_ids"].size(), 4U);
  }
}

TEST_F(GenerateTest, AKilledRunGoesOnAndHasEverySampleOnce) {
  for (const char* at : {"optimizer_step:4", "commit:4", "checkpoint_rename:3", "mark_durable:3"}) {
    std::filesystem::remove_all(Path("run"));
    WriteJob(Job());
    const ChildResult crashed =
        Freshet({"local", "job.yaml", "--run-dir", "run", "--crash-at", at});
    EXPECT_EQ(crashed.signal, SIGKILL) << at;
    Resume();
    ExpectEverySample();
  }
}

TEST_F(GenerateTest, AnAgentsConversationHasItsTurns) {
  TinyJob job = Job();
  job["model"] =
      "{init: random, config: {model_type: llama, hidden_size: 32, num_hidden_layers: 1, "
      "num_attention_heads: 2, intermediate_size: 64, max_position_embeddings: 32}}";
  job["tokenizer"] = "{type: char, alphabet: \"0123456789<>=!?\"}";
  job["dataset"] = "{type: template, prompt: \"{q}\", rows: [{q: \"?\"}]}";
  job["environment"] =
      "{type: guess_number, max_turns: 4, max_turn_tokens: 2, options: {max: \"10\"}}";
  job["rollout"] = "{max_new_tokens: 16}";
  job["reward"] = "{components: {found: {type: environment}}}";
  Train(job);
  size_t with_answers = 0;
  for (const Json& row : ExpectEverySample()) {
    EXPECT_EQ(row["environment_reward"], row["reward"]);
    size_t tokens = 0;
    for (const Json& turn : row.value("turns", Json::array()))
      tokens += turn["tokens"].get<size_t>();
    if (tokens == 0) continue;
    ++with_answers;
    EXPECT_EQ(tokens, row["tokens"].get<size_t>());
    EXPECT_EQ(row["turns"][0]["role"], "policy");
    EXPECT_EQ(row["turns"][1]["role"], "environment");
  }
  EXPECT_GT(with_answers, 0U);
}

TEST_F(GenerateTest, WhatOnlyTrainingNeedsIsRefused) {
  TinyJob job = Job();
  job["optimizer"] = "{learning_rate: 1.0e-3}";
  WriteJob(job);
  const ChildResult result = Freshet({"validate", "job.yaml"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("optimizer: applies only with kind train"));
}

}  // namespace
}  // namespace freshet
