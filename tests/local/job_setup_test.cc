#include "local/job_setup.h"

#include <filesystem>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/job_parser.h"
#include "tests/e2e/tiny_job.h"
#include "tests/runlog/scratch_folder.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

absl::StatusOr<std::unique_ptr<JobSetup>> Prepare(const TinyJob& job) {
  const JobResult parsed = ParseJob(ToYaml(job), "job.yaml", {});
  EXPECT_TRUE(parsed.errors.empty()) << FormatConfigErrors(parsed.errors);
  return PrepareJob(parsed.spec, parsed.places);
}

std::unique_ptr<JobSetup> MustPrepare(const TinyJob& job) {
  auto setup = Prepare(job);
  EXPECT_TRUE(setup.ok()) << setup.status();
  return *std::move(setup);
}

std::string Error(const TinyJob& job) {
  const auto setup = Prepare(job);
  EXPECT_EQ(setup.status().code(), absl::StatusCode::kInvalidArgument);
  return Message(setup.status());
}

TEST(JobSetup, OpensEverythingThatTheJobNames) {
  TinyJob job = MakeTinyJob();
  job["rollout"] =
      "{max_new_tokens: 3, top_p: 0.9, top_k: 7, temperature: 0.8, stop_token_ids: [2]}";
  job["eval"] = "{rows: 20, temperature: 0.5, max_new_tokens: 4}";
  const auto setup = MustPrepare(job);
  EXPECT_EQ(setup->model.config.vocab_size, 12) << "11 characters and the end token";
  EXPECT_EQ(setup->model.config.hidden_size, 32);
  EXPECT_EQ(setup->model.files, nullptr);
  EXPECT_EQ(setup->data.train->size(), 800);
  EXPECT_EQ(setup->data.held_out.at(0)->size(), 20);
  EXPECT_EQ(setup->prompts.longest, 4);
  EXPECT_EQ(setup->prompts.most, 4) << "a context of 8 less the longest response";
  EXPECT_EQ(setup->sampling.max_new_tokens, 3);
  EXPECT_FLOAT_EQ(static_cast<float>(setup->sampling.top_p), 0.9F);
  EXPECT_EQ(setup->sampling.top_k, 7);
  EXPECT_THAT(setup->sampling.stop_ids, AllOf(Contains(11), Contains(2)));
  EXPECT_EQ(setup->eval_sampling.at(0).max_new_tokens, 4);
  EXPECT_EQ(setup->eval_sampling.at(0).top_k, 0);
  EXPECT_FLOAT_EQ(static_cast<float>(setup->eval_sampling.at(0).temperature), 0.5F);
}

TEST(JobSetup, WithoutEvaluationNothingIsHeldOut) {
  TinyJob job = MakeTinyJob();
  job["eval"] = "";
  EXPECT_TRUE(MustPrepare(job)->data.held_out.empty());
}

TEST(JobSetup, HeldOutRowsAreNotTrainedOn) {
  const auto setup = MustPrepare(MakeTinyJob());
  std::vector<std::string> trained;
  for (int64_t i = 0; i < setup->data.train->size(); ++i) {
    trained.push_back(setup->data.train->Get(i)->prompt);
  }
  for (int64_t i = 0; i < setup->data.held_out.at(0)->size(); ++i) {
    EXPECT_THAT(trained, testing::Not(Contains(setup->data.held_out.at(0)->Get(i)->prompt)));
  }
}

TEST(JobSetup, APromptTooLongIsNamed) {
  TinyJob job = MakeTinyJob();
  job["dataset"] =
      "{type: template, prompt: \"{q}\", answer: a, rows: [{q: \"1\", a: \"1\"}, {q: \"12345\", a: "
      "\"1\"}]}";
  job["eval"] = "";
  EXPECT_THAT(Error(job), HasSubstr("5 tokens, more than 4"));
}

TEST(JobSetup, WarmUpAnswersAreCheckedBeforehand) {
  TinyJob job = MakeTinyJob();
  job["dataset"] =
      "{type: template, prompt: \"{q}\", answer: a, rows: [{q: \"1\", a: \"x\"}, {q: \"1\", a: "
      "\"1234567\"}]}";
  job["eval"] = "";
  EXPECT_THAT(Error(job), AllOf(HasSubstr("answer: "), HasSubstr("'x'"), HasSubstr("\n"),
                                HasSubstr("9 tokens, the model's context is 8")));
  job["warmup"] = "";
  EXPECT_TRUE(Prepare(job).ok());
}

// A job over the GSM8K files. Skipped if they are absent.
class Gsm8kJob : public testing::Test {
 protected:
  void SetUp() override {
    const std::string data = std::string(FRESHET_SOURCE_DIR) + "/../shared/data/";
    if (!std::filesystem::exists(data + "gsm8k/train.jsonl")) {
      GTEST_SKIP() << "the reference data set gsm8k is not on this machine";
    }
    TinyJob job = MakeTinyJob();
    job["model"] =
        "{init: random, config: {model_type: llama, hidden_size: 32, num_hidden_layers: 1, "
        "num_attention_heads: 2, intermediate_size: 64, max_position_embeddings: 2048}}";
    job["tokenizer"] = "{type: file, path: " + data + "stories260K/hf}";
    job["dataset"] = "{type: jsonl, path: " + data + "gsm8k/train.jsonl, eval_path: " + data +
                     "gsm8k/test.jsonl, prompt: \"{question}\", answer: answer}";
    job["reward"] = "{components: {number: {type: numeric}}}";
    job["eval"] = "{rows: 1319}";
    setup_ = MustPrepare(job);
  }
  double Reward(const DatasetRow& row, const std::string& completion) const {
    const auto score = setup_->scorer->Score({completion, 1, true, row.attributes});
    EXPECT_TRUE(score.ok()) << score.status();
    return score.ok() ? score->reward : -1;
  }
  std::unique_ptr<JobSetup> setup_;
};

TEST_F(Gsm8kJob, EveryRowLoadsAndGoldAnswersScoreOneAndOthersZero) {
  EXPECT_EQ(setup_->data.train->size(), 7473);
  EXPECT_EQ(setup_->data.held_out.at(0)->size(), 1319);
  EXPECT_GT(setup_->prompts.longest, 100);
  for (int64_t i = 0; i < setup_->data.held_out.at(0)->size(); ++i) {
    const DatasetRow row = *setup_->data.held_out.at(0)->Get(i);
    const std::string& answer = row.attributes.at("answer");
    ASSERT_EQ(Reward(row, answer), 1) << answer;
    ASSERT_EQ(Reward(row, answer + "1"), 0) << answer;
    ASSERT_EQ(Reward(row, "no number"), 0);
  }
}

}  // namespace
}  // namespace freshet
