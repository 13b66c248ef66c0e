#include "dataset/dataset_setup.h"

#include <algorithm>
#include <cmath>

#include "base/str_cat.h"
#include "dataset/task_mixture.h"
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
using testing::DoubleEq;
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

TEST_F(DatasetSetup, ARowWhoseBudgetIsNoNumberOfTokensIsRefused) {
  const ScratchFolder scratch;
  scratch.Write("rows.jsonl",
                "{\"q\": \"1\", \"b\": 7, \"mode\": \"short\"}\n{\"q\": \"2\", \"b\": \"2.5\", "
                "\"mode\": \"long\"}\n");
  job_["dataset"] = "{type: jsonl, path: " + scratch.File("rows.jsonl") + ", prompt: \"{q}\"}";
  job_["warmup"] = "";
  job_["eval"] = "";
  const auto refusal = [&](const std::string& text) {
    job_["reward"] = "{components: {brief: {type: length, shape: budget, text: \"" + text + "\"}}}";
    return Message(OpenDatasets(Spec(), DataRoots::Unlimited()).status());
  };
  EXPECT_EQ(refusal("{q}"), "");
  EXPECT_THAT(refusal("{b}"), AllOf(HasSubstr("rows.jsonl:2: reward.components.brief: the row's "
                                              "budget is not a whole number"),
                                    Not(HasSubstr("rows.jsonl:1:"))));
  EXPECT_THAT(refusal("{mode}"), AllOf(HasSubstr("rows.jsonl:1:"), HasSubstr("rows.jsonl:2:")));
}

TEST_F(DatasetSetup, TheFolderOfFurtherFilesIsNoFile) {
  const ScratchFolder scratch;
  scratch.Write("rows.jsonl", "{\"q\": \"1\"}\n");
  job_["warmup"] = "";
  job_["eval"] = "";
  job_["staleness"] = "{max: 1}";
  job_["reward"] = "{components: {a: {type: contains, text: \"1\"}}}";
  const auto refusal = [&](const std::string& more) {
    job_["dataset"] = "{type: jsonl, path: " + scratch.File("rows.jsonl") +
                      ", prompt: \"{q}\", more_path: " + scratch.File(more) + "}";
    return Message(OpenDatasets(Spec(), DataRoots::Unlimited()).status());
  };
  EXPECT_EQ(refusal("later"), "") << "it may be made while the job runs";
  EXPECT_THAT(OpenDatasets(Spec(), DataRoots::Unlimited())->warning,
              HasSubstr("later is missing; make it"));
  EXPECT_THAT(refusal("rows.jsonl"), HasSubstr("rows.jsonl: is a file; name a folder"));
}

TEST_F(DatasetSetup, TasksAlternateByTheirWeightsAndNameTheirRows) {
  job_["dataset"] = "";
  job_["tasks"] =
      "{copies: {weight: 3, dataset: {type: copy, symbols: \"012\", length: 2, train_rows: 5}}, "
      "fixed: {dataset: {type: template, prompt: \"{q}\", answer: a, shuffle: false, "
      "rows: [{q: \"7\", a: \"7\"}, {q: \"8\", a: \"8\"}]}}}";
  job_["eval"] = "{rows: 2}";
  const JobDatasets data = Open();
  ASSERT_NE(data.train, nullptr);
  EXPECT_EQ(data.train->size(), 5 + 2);
  std::vector<std::string> tasks;
  std::vector<std::string> fixed;
  for (int64_t ordinal = 0; ordinal < 12; ++ordinal) {
    const DatasetRow row = *data.train->Get(data.train->RowOf(3, ordinal, true));
    tasks.push_back(row.attributes.at("task"));
    if (tasks.back() == "fixed") fixed.push_back(row.prompt);
  }
  for (size_t round = 0; round < 12; round += 4) {
    EXPECT_EQ(std::count(tasks.begin() + round, tasks.begin() + round + 4, "copies"), 3);
  }
  EXPECT_THAT(fixed, ElementsAre("7", "8", "7"));
  EXPECT_EQ(data.train->Where(6), "task fixed: dataset.rows[1]");
  ASSERT_EQ(data.held_out.size(), 2U);
  EXPECT_EQ(data.held_out[0]->Get(0)->attributes.at("task"), "copies");
  EXPECT_EQ(data.held_out[1]->Get(1)->prompt, "8");
  EXPECT_EQ(data.held_out[1]->Get(1)->attributes.at("task"), "fixed");
}

TEST(TaskOrder, SpreadsEveryTaskEvenly) {
  EXPECT_THAT(TaskOrder({1}), ElementsAre(0));
  EXPECT_THAT(TaskOrder({2, 1, 1}), ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(TaskOrder({1, 3}), ElementsAre(1, 0, 1, 1));
}

TEST(CurriculumFactor, IsGreatestForTasksThatSucceedHalfOfTheTime) {
  EXPECT_EQ(CurriculumFactor(std::nullopt, 0.1), 1);
  EXPECT_EQ(CurriculumFactor(0.5, 0.1), 1);
  EXPECT_DOUBLE_EQ(CurriculumFactor(0.75, 0.1), 0.75);
  EXPECT_EQ(CurriculumFactor(0.0, 0.1), 0.1);
  EXPECT_EQ(CurriculumFactor(1.0, 0.1), 0.1);
}

TEST(TaskCurriculum, SharesFollowMeasuredSuccess) {
  TaskCurriculum curriculum({{"a", 1, 2}, {"b", 1, 1}, {"c", 2, 1}}, {0.1, 0.5});
  const auto counts = [&curriculum](int prompts) {
    std::vector<int> of_tasks(3);
    for (int i = 0; i < prompts; ++i) ++of_tasks[curriculum.Next()];
    return of_tasks;
  };
  EXPECT_THAT(counts(400), ElementsAre(100, 100, 200));
  curriculum.Observe(0, 1, {{"a", 1.0}, {"b", 5.0}, {"x", 1.0}});  // half, always, unknown
  EXPECT_THAT(counts(310), ElementsAre(100, 10, 200));
  curriculum.Observe(0, 1, {{"a", 0.0}});  // told twice
  curriculum.Observe(0, 2, {{"a", 2.0}, {"c", std::nan("")}});
  EXPECT_THAT(counts(285), ElementsAre(75, 10, 200));
  curriculum.Reset();
  curriculum.Observe(0, 1, {{"a", 1.0}, {"b", 5.0}});
  EXPECT_THAT(counts(310), ElementsAre(100, 10, 200)) << "as if the other steps had not been";
}

TEST_F(DatasetSetup, ACurriculumChoosesTheTasksAndEachGoesThroughItsRows) {
  job_["dataset"] = "";
  job_["eval"] = "";
  job_["warmup"] = "";
  const std::string rows = "dataset: {type: template, prompt: \"{q}\", shuffle: false, rows: ";
  job_["tasks"] = "{a: {" + rows + "[{q: \"1\"}, {q: \"2\"}]}}, b: {" + rows + "[{q: \"3\"}]}}}";
  job_["reward"] = "{components: {c: {type: contains, text: \"1\"}}}";
  job_["curriculum"] = "{least_factor: 0.01, smoothing: 1}";
  const JobDatasets data = Open();
  ASSERT_NE(data.curriculum, nullptr);
  data.curriculum->Observe(0, 1, {{"a", 0.5}, {"b", 1.0}});
  std::vector<int64_t> chosen;
  for (const int64_t ordinal : {10, 11, 11, 12, 13}) {
    chosen.push_back(data.train->RowOf(3, ordinal, true));
  }
  EXPECT_THAT(chosen, ElementsAre(1, 0, 0, 1, 0)) << "a began at its sixth prompt";
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
  EXPECT_THAT(*MakePromptEncoder({}, *tokenizer_)({"7=", {}}), ElementsAre(7, 10));
}

}  // namespace
}  // namespace freshet
