#include "job/tasks.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/eval_sets.h"
#include "tests/job/job_text.h"

namespace freshet {
namespace {

using job::v1::JobSpec;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kTasks[] =
    "tasks: {sums: {weight: 2, dataset: {type: arithmetic, digits: 1, train_rows: 50}}, "
    "words: {dataset: {type: copy, symbols: \"01\", length: 3, train_rows: 4}}}";

// The minimal job with tasks instead of its dataset, and `more` lines.
std::string JobWithTasks(const std::string& tasks, const std::string& more) {
  return MinimalJobWith(4, tasks) + more;
}

TEST(Tasks, TaskSpecHasWhatBelongsToTheTask) {
  const std::string reward =
      "reward: {components: {exact: {type: exact_match}, short: {type: length, max_tokens: 3, "
      "tasks: [words]}}}";
  std::string text = JobWithTasks(kTasks, "eval: {rows: 2}\n");
  text.replace(text.find("reward:"), text.find('\n', text.find("reward:")) - text.find("reward:"),
               reward);
  const JobResult result = ParseJob(text, "job.yaml");
  ASSERT_EQ(FormatConfigErrors(result.errors), "");
  const JobSpec& spec = result.spec;
  EXPECT_THAT(TaskNames(spec), ElementsAre("sums", "words"));
  EXPECT_EQ(spec.tasks().at("words").weight(), 1);
  ASSERT_EQ(spec.eval().sets_size(), 2) << "the resolved job says that each task is evaluated";
  EXPECT_EQ(spec.eval().sets(1).name(), "words");
  EXPECT_EQ(spec.eval().sets(1).rows(), 2);

  const JobSpec sums = TaskSpec(spec, "sums");
  EXPECT_TRUE(sums.tasks().empty());
  EXPECT_EQ(sums.dataset().type(), "arithmetic");
  EXPECT_EQ(sums.reward().components().size(), 1U);
  ASSERT_EQ(EvalSets(sums).size(), 1U);
  EXPECT_EQ(EvalSets(sums)[0].task(), "sums");
  EXPECT_EQ(HeldOutRows(sums), 2);
  EXPECT_EQ(TaskSpec(spec, "words").reward().components().size(), 2U);
  EXPECT_EQ(DatasetOfRow(spec, {{"task", "words"}}).type(), "copy");
}

TEST(Tasks, WithoutTasksTheJobIsTheOnlyOne) {
  const JobSpec spec = ParseJob(MinimalJob(), "job.yaml").spec;
  EXPECT_THAT(TaskNames(spec), ElementsAre(""));
  EXPECT_EQ(TaskSpec(spec, "").dataset().type(), "arithmetic");
  EXPECT_EQ(DatasetOfRow(spec, {{"task", "a field of its own"}}).type(), "arithmetic");
}

TEST(Tasks, MistakesAreLocatedInTheTask) {
  struct Case {
    std::string tasks;
    std::string more;
    std::string error;
  };
  const std::string rows = "{type: template, prompt: \"{q}\", rows: [{q: \"1\"}]}";
  for (const auto& [tasks, more, error] : {
           Case{kTasks, "", ""},
           Case{"", "", "job.yaml: dataset: is required but missing; give it, or tasks"},
           Case{std::string(kTasks) + "\ndataset: {type: arithmetic}", "",
                "job.yaml:5: dataset: has no effect with tasks, which have datasets; remove one of "
                "them"},
           Case{"tasks: {a: {}}", "",
                "job.yaml:4: tasks.a.dataset.type: is required but missing; give one of "
                "arithmetic, copy, template, jsonl"},
           Case{"tasks: {a.b: {dataset: {type: arithmetic}}}", "",
                "job.yaml:4: tasks.a.b: the name of a task is at most 63 letters, digits, '_' and "
                "'-', starting with a letter or a digit"},
           Case{"tasks: {a: {dataset: {type: arithmetic, digits: 1, train_rows: 200}}}", "",
                "job.yaml:4: tasks.a.dataset.train_rows: must be at most 100, the different rows "
                "of this dataset, got 200"},
           Case{"tasks: {a: {dataset: {type: copy, symbols: \"ab\", train_rows: 9}}}", "",
                "job.yaml:3: tokenizer.alphabet: lacks 'a', which dataset.type copy needs"},
           Case{"tasks: {a: {dataset: " + rows + "}}", "",
                "job.yaml:6: reward.components.exact.text: asks for the gold answer, but rows have "
                "none; name their field in dataset.answer"},
           Case{kTasks, "eval: {sets: [{name: x}]}\n",
                "job.yaml:9: eval.sets.0.task: is required with tasks; give one of sums, words"},
           Case{kTasks, "eval: {sets: [{name: x, task: y}]}\n",
                "job.yaml:9: eval.sets.0.task: must be one of sums, words, got 'y'"},
           Case{kTasks,
                "eval: {sets: [{name: x, task: sums, rows: 3}, {name: z, task: words, rows: 9}]}\n",
                "job.yaml:9: eval.sets.1.rows: must be at most 4, what dataset.train_rows 4 leaves "
                "of 8 different rows, got 9"},
           Case{kTasks, "eval: {name: x, rows: 2}\n",
                "job.yaml:9: eval.name: has no effect with tasks, whose names evaluations have; "
                "remove it"},
           Case{"tasks: {a: {environment: e, dataset: {type: arithmetic}}}", "",
                "job.yaml:4: tasks.a.environment: needs environment.type grpc; remove it"},
           Case{"tasks: {a: {dataset: {type: jsonl, path: p, prompt: \"1\", answer: a, more_path: "
                "m}}}",
                "",
                "job.yaml:4: tasks.a.dataset.more_path: only a job's only dataset can grow; remove "
                "it, or use dataset instead of tasks"},
           Case{"dataset: {type: jsonl, path: p, prompt: \"1\", answer: a, more_path: m}",
                "staleness: {max: 0}\n",
                "job.yaml:4: dataset.more_path: needs staleness.max above 0: with 0 runs are "
                "repeatable, but when files appear depends on time"},
           Case{kTasks, "curriculum: {}\n", ""},
           Case{kTasks, "curriculum: {}\nstaleness: {max: 0}\n",
                "job.yaml:9: curriculum: needs staleness.max above 0: with 0 runs are repeatable, "
                "but which rows a curriculum chooses depends on time"},
           Case{"dataset: {type: arithmetic}", "curriculum: {}\n",
                "job.yaml:9: curriculum: chooses among tasks, but the job has none; remove it"},
           Case{"dataset: {type: arithmetic}", "eval: {sets: [{name: x, task: y}]}\n",
                "job.yaml:9: eval.sets.0.task: has no effect without tasks; remove it"},
       }) {
    const std::vector<std::string> lines = ErrorLines(JobWithTasks(tasks, more));
    if (error.empty()) {
      EXPECT_THAT(lines, IsEmpty()) << tasks;
    } else {
      EXPECT_THAT(lines, ElementsAre(error)) << tasks << more;
    }
  }
  const std::string reward = "reward: {components: {exact: {type: exact_match, tasks: [sums]}}}";
  std::string text = JobWithTasks(kTasks, "");
  text.replace(text.find("reward:"), text.find('\n', text.find("reward:")) - text.find("reward:"),
               reward);
  EXPECT_THAT(ErrorLines(text),
              ElementsAre("job.yaml:4: tasks.words: no component of the reward scores it; add "
                          "words to reward.components.NAME.tasks of one"));
}

}  // namespace
}  // namespace freshet
