#include "dataset/dataset_setup.h"

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/job_parser.h"
#include "tests/e2e/tiny_job.h"
#include "tests/runlog/scratch_folder.h"
#include "text/char_tokenizer.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class DatasetSetup : public testing::Test {
 protected:
  job::v1::JobSpec Spec() const {
    const JobResult parsed = ParseJob(ToYaml(job_), "job.yaml", {});
    EXPECT_TRUE(parsed.errors.empty()) << FormatConfigErrors(parsed.errors);
    return parsed.spec;
  }
  JobDatasets Open() const {
    auto data = OpenDatasets(Spec(), DataRoots::Unlimited());
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? *std::move(data) : JobDatasets{};
  }
  absl::StatusOr<PromptBounds> Check(int64_t context_tokens) const {
    return CheckRows(Spec(), Open(), *tokenizer_, context_tokens);
  }

  TinyJob job_ = MakeTinyJob();
  std::unique_ptr<Tokenizer> tokenizer_ = *CreateCharTokenizer("0123456789=");
};

TEST_F(DatasetSetup, HeldOutRowsAreNotTrainedOn) {
  const JobDatasets data = Open();
  EXPECT_EQ(data.train->size(), 800);
  ASSERT_EQ(data.held_out.size(), 1U);
  const Dataset& held_out = *data.held_out[0];
  ASSERT_EQ(held_out.size(), 20);
  std::vector<std::string> trained;
  for (int64_t i = 0; i < data.train->size(); ++i) trained.push_back(data.train->Get(i)->prompt);
  for (int64_t i = 0; i < held_out.size(); ++i) {
    EXPECT_THAT(trained, Not(Contains(held_out.Get(i)->prompt)));
  }
}

TEST_F(DatasetSetup, WithoutEvaluationNothingIsHeldOut) {
  job_["eval"] = "";
  EXPECT_TRUE(Open().held_out.empty());
}

TEST_F(DatasetSetup, AnEvaluationSetHasItsOwnFileOrSharesTheHeldOutRows) {
  const ScratchFolder scratch;
  scratch.Write("rows.jsonl", "{\"q\": \"1\"}\n{\"q\": \"2\"}\n{\"q\": \"3\"}\n{\"q\": \"4\"}\n");
  scratch.Write("own.jsonl", "{\"q\": \"7\"}\n");
  job_["dataset"] = "{type: jsonl, path: " + scratch.File("rows.jsonl") + ", prompt: \"{q}\"}";
  job_["warmup"] = "";
  job_["reward"] = "{components: {a: {type: contains, text: \"1\"}}}";
  job_["eval"] = "{sets: [{name: one, rows: 1}, {name: own, path: " + scratch.File("own.jsonl") +
                 "}, {name: two, rows: 2}]}";
  const JobDatasets data = Open();
  EXPECT_EQ(data.train->size(), 2);
  ASSERT_EQ(data.held_out.size(), 3U);
  EXPECT_EQ(data.held_out[0]->Get(0)->prompt, "3");
  EXPECT_EQ(data.held_out[0], data.held_out[2]);
  EXPECT_EQ(data.held_out[1]->size(), 1);
  EXPECT_EQ(data.held_out[1]->Get(0)->prompt, "7");
}

TEST_F(DatasetSetup, RowsMustHaveTheFieldsOfTheRewards) {
  const ScratchFolder scratch;
  scratch.Write("rows.jsonl", "{\"q\": \"1\", \"name\": \"x\"}\n{\"q\": \"2\"}\n");
  job_["dataset"] = "{type: jsonl, path: " + scratch.File("rows.jsonl") + ", prompt: \"{q}\"}";
  job_["warmup"] = "";
  job_["eval"] = "";
  job_["reward"] = "{components: {a: {type: contains, text: \"{name}\"}}}";
  const auto data = OpenDatasets(Spec(), DataRoots::Unlimited());
  EXPECT_EQ(data.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(data.status()), AllOf(HasSubstr("rows.jsonl:2: "), HasSubstr("'name'")));
}

TEST_F(DatasetSetup, PromptsLeaveRoomForTheLongestResponse) {
  job_["eval"] = "{rows: 20, max_new_tokens: 3}";
  const auto bounds = Check(9);
  ASSERT_TRUE(bounds.ok()) << bounds.status();
  EXPECT_EQ(bounds->most, 9 - 4);
  EXPECT_EQ(bounds->longest, 4);
  job_["eval"] = "{rows: 20, max_new_tokens: 4}";
  EXPECT_THAT(Message(Check(4).status()),
              HasSubstr("rollout.max_new_tokens: 4 leaves no room for a prompt"));
  EXPECT_THAT(Message(Check(7).status()), HasSubstr("4 tokens, more than 3"));
}

TEST_F(DatasetSetup, WarmUpAnswersAreCheckedBeforehand) {
  job_["dataset"] =
      "{type: template, prompt: \"{q}\", answer: a, rows: [{q: \"1\", a: \"x\"}, {q: \"1\", a: "
      "\"1234567\"}]}";
  job_["eval"] = "";
  EXPECT_THAT(Message(Check(8).status()),
              AllOf(HasSubstr("answer: "), HasSubstr("'x'"), HasSubstr("\n"),
                    HasSubstr("9 tokens, the model's context is 8")));
  job_["warmup"] = "";
  EXPECT_TRUE(Check(8).ok());
}

TEST_F(DatasetSetup, TheFeederFollowsTheJob) {
  job_["seed"] = "11";
  job_["dataset"] = "{type: copy, symbols: \"0123456789\", length: 3, shuffle: false}";
  job_["dataset"].insert(job_["dataset"].size() - 1, ", train_rows: 800");
  const PromptFeederOptions options = MakeFeederOptions(Spec(), {6, 4});
  EXPECT_EQ(options.seed, 11U);
  EXPECT_FALSE(options.shuffle);
  EXPECT_EQ(options.max_prompt_tokens, 6);
  EXPECT_THAT(*MakePromptEncoder({}, *tokenizer_)("7="), ElementsAre(7, 10));
}

}  // namespace
}  // namespace freshet
