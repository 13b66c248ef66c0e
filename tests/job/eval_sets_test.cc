#include "job/eval_sets.h"

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "job/job_yaml.h"
#include "tests/job/job_text.h"

namespace freshet {
namespace {

using job::v1::EvalSet;
using testing::ElementsAre;
using testing::IsEmpty;

// A job that samples at temperature 0.8 with min_p 0.1, and evaluates as `eval` says.
JobSpec Parsed(const std::string& eval) {
  const JobResult result =
      ParseJob(MinimalJobWith(5, "rollout: {max_new_tokens: 4, temperature: 0.8, min_p: 0.1}") +
                   "eval: " + eval + "\n",
               "job.yaml");
  EXPECT_EQ(FormatConfigErrors(result.errors), "");
  return result.spec;
}

TEST(EvalSets, WithoutSetsThereIsOneGreedySet) {
  const JobSpec spec = Parsed("{rows: 5}");
  const std::vector<EvalSet> sets = EvalSets(spec);
  ASSERT_EQ(sets.size(), 1U);
  EXPECT_EQ(sets[0].name(), "heldout");
  EXPECT_EQ(sets[0].rows(), 5);
  EXPECT_EQ(sets[0].samples_per_prompt(), 1);
  EXPECT_THAT(sets[0].pass_at(), IsEmpty());
  EXPECT_EQ(sets[0].pass_reward(), 1.0);
  EXPECT_EQ(sets[0].temperature(), 0.0);
  EXPECT_EQ(sets[0].top_p(), 1.0);
  EXPECT_EQ(sets[0].top_k(), 0);
  EXPECT_EQ(sets[0].min_p(), 0.1);
  EXPECT_EQ(sets[0].max_new_tokens(), 4);
  EXPECT_EQ(spec.eval().temperature(), 0.0) << "the resolved job says so";
}

TEST(EvalSets, SeveralSamplesAreDrawnAsInTraining) {
  const JobSpec spec = Parsed("{samples_per_prompt: 4, pass_at: [1, 4]}");
  EXPECT_EQ(spec.eval().temperature(), 0.8);
  EXPECT_THAT(EvalSets(spec)[0].pass_at(), ElementsAre(1, 4));
}

TEST(EvalSets, SetsTakeWhatTheyDoNotSayFromTheBlock) {
  const JobSpec spec = Parsed(
      "{rows: 20, samples_per_prompt: 4, pass_at: [1, 4], top_p: 0.9, sets: [{name: plain}, "
      "{name: greedy, samples_per_prompt: 1, top_p: 1.0}, {name: more, rows: 7, "
      "samples_per_prompt: 8, pass_at: [8], pass_reward: 0.5, temperature: 0.25, top_k: 3, "
      "min_p: 0, max_new_tokens: 2}]}");
  const std::vector<EvalSet> sets = EvalSets(spec);
  ASSERT_EQ(sets.size(), 3U);
  EXPECT_EQ(sets[0].name(), "plain");
  EXPECT_EQ(sets[0].rows(), 20);
  EXPECT_EQ(sets[0].samples_per_prompt(), 4);
  EXPECT_THAT(sets[0].pass_at(), ElementsAre(1, 4));
  EXPECT_EQ(sets[0].temperature(), 0.8);
  EXPECT_EQ(sets[0].top_p(), 0.9);
  EXPECT_EQ(sets[1].temperature(), 0.0) << "greedy with one sample";
  EXPECT_EQ(sets[1].top_p(), 1.0);
  EXPECT_THAT(sets[1].pass_at(), ElementsAre(1)) << "the others need more samples";
  EXPECT_EQ(sets[2].rows(), 7);
  EXPECT_THAT(sets[2].pass_at(), ElementsAre(8));
  EXPECT_EQ(sets[2].pass_reward(), 0.5);
  EXPECT_EQ(sets[2].temperature(), 0.25);
  EXPECT_EQ(sets[2].top_k(), 3);
  EXPECT_EQ(sets[2].min_p(), 0.0);
  EXPECT_EQ(sets[2].max_new_tokens(), 2);
  EXPECT_EQ(HeldOutRows(spec), 20);
}

TEST(EvalSets, AResolvedJobSaysEverythingAndReadsBackTheSame) {
  const JobSpec spec = Parsed("{samples_per_prompt: 2, sets: [{name: a}, {name: b, rows: 3}]}");
  EXPECT_EQ(spec.eval().sets(1).temperature(), 0.8);
  EXPECT_FALSE(spec.eval().has_name());
  const JobResult again = ParseJob(WriteJobYaml(spec), "job.yaml");
  EXPECT_EQ(FormatConfigErrors(again.errors), "");
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(spec, again.spec));
}

TEST(EvalSets, AJobOfAnOlderVersionHasOneSet) {
  JobSpec spec;
  spec.mutable_eval()->set_name("heldout");
  spec.mutable_eval()->set_rows(9);
  spec.mutable_eval()->set_temperature(0.5);
  spec.mutable_rollout()->set_max_new_tokens(4);
  const std::vector<EvalSet> sets = EvalSets(spec);
  ASSERT_EQ(sets.size(), 1U);
  EXPECT_EQ(sets[0].rows(), 9);
  EXPECT_EQ(sets[0].samples_per_prompt(), 1);
  EXPECT_EQ(sets[0].temperature(), 0.5);
  EXPECT_EQ(sets[0].top_p(), 1.0);
  EXPECT_EQ(sets[0].max_new_tokens(), 4);
  EXPECT_TRUE(IsFirstEvalSet(spec, "heldout"));
  EXPECT_THAT(EvalSets(JobSpec()), IsEmpty());
  EXPECT_EQ(HeldOutRows(JobSpec()), 0);
}

TEST(EvalSets, AreFoundByName) {
  const JobSpec spec = Parsed("{sets: [{name: a}, {name: b, rows: 3}]}");
  EXPECT_EQ(FindEvalSet(spec, "b")->rows(), 3);
  EXPECT_EQ(FindEvalSet(spec, "")->name(), "a") << "an older controller names none";
  EXPECT_EQ(FindEvalSet(spec, "c").status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(IsFirstEvalSet(spec, "a"));
  EXPECT_FALSE(IsFirstEvalSet(spec, "b"));
}

TEST(EvalSets, RowsOfAFileAreNotHeldOut) {
  JobSpec spec;
  EvalSet& own = *spec.mutable_eval()->add_sets();
  own.set_path("own.jsonl");
  own.set_rows(50);
  spec.mutable_eval()->add_sets()->set_rows(5);
  EXPECT_EQ(HeldOutRows(spec), 5);
  EXPECT_EQ(EvalPath(spec, spec.eval().sets(0)), "own.jsonl");
  EXPECT_EQ(EvalPath(spec, spec.eval().sets(1)), "");
  spec.mutable_dataset()->set_eval_path("test.jsonl");
  EXPECT_EQ(EvalPath(spec, spec.eval().sets(0)), "own.jsonl");
  EXPECT_EQ(EvalPath(spec, spec.eval().sets(1)), "test.jsonl");
  EXPECT_EQ(HeldOutRows(spec), 0);
}

struct FaultCase {
  const char* eval;
  std::vector<const char*> errors;
};

TEST(EvalSets, FaultsNameTheKey) {
  for (const FaultCase& c : std::vector<FaultCase>{
           {"{pass_at: [1]}", {}},
           {"{samples_per_prompt: 4, pass_at: [1, 5]}",
            {"eval.pass_at: each must be from 1 to samples_per_prompt 4, got 5"}},
           {"{samples_per_prompt: 4, pass_at: [0, 2, 2]}",
            {"eval.pass_at: each must be from 1 to samples_per_prompt 4, got 0",
             "eval.pass_at: holds 2 twice; remove one"}},
           {"{samples_per_prompt: 1025}",
            {"eval.samples_per_prompt: must be from 1 to 1024, got 1025"}},
           {"{rows: 0, sets: [{name: a}]}", {"eval.rows: must be from 1 to 10000000, got 0"}},
           {"{sets: [{name: a, temperature: -1}]}",
            {"eval.sets.0.temperature: must be from 0 to 100, got -1.0"}},
           {"{sets: [{rows: 3}]}", {"eval.sets.0.name: is required but missing"}},
           {"{sets: [{name: a, row: 3}]}", {"eval.sets.0.row: unknown key; did you mean rows?"}},
           {"{sets: [{name: a}, {name: \"b c\"}]}",
            {"eval.sets.1.name: must be letters, digits, '_' and '-', starting with a letter or a "
             "digit; got 'b c'"}},
           {"{sets: [{name: a}, {name: b}, {name: a}]}",
            {"eval.sets.2.name: another set is called a; names must be different"}},
           {"{name: x, sets: [{name: a}]}",
            {"eval.name: has no effect with eval.sets, which have names; remove it"}},
           {"{pass_at: [4], sets: [{name: a}]}",
            {"eval.pass_at: no set has at least 4 samples per prompt; remove it or raise "
             "samples_per_prompt"}},
           {"{sets: [{name: a, samples_per_prompt: 2, pass_at: [3]}]}",
            {"eval.sets.0.pass_at: each must be from 1 to samples_per_prompt 2, got 3"}},
           {"{sets: [{name: a, path: x.jsonl}]}",
            {"eval.sets.0.path: applies only with dataset.type jsonl; remove it"}},
           {"{sets: [{name: a}, {name: b, rows: 2001}]}",
            {"eval.sets.1.rows: must be at most 2000, what dataset.train_rows 8000 leaves of 10000 "
             "different rows, got 2001"}},
           {"{sets: [{name: a}, {name: b, max_new_tokens: 11}]}",
            {"eval.sets.1.max_new_tokens: a prompt of 6 tokens and 11 new ones do not fit into "
             "model.config.max_position_embeddings 16; the most is 10"}},
       }) {
    std::vector<std::string> expected;
    for (const char* error : c.errors) expected.push_back(StrCat("job.yaml:9: ", error));
    EXPECT_EQ(ErrorLines(MinimalJob() + "eval: " + c.eval + "\n"), expected) << c.eval;
  }
}

TEST(EvalSets, TheirNumberOfSamplesIsBounded) {
  const std::string rows = "dataset: {type: arithmetic, digits: 8}";
  EXPECT_THAT(
      ErrorLines(MinimalJobWith(4, rows) + "eval: {rows: 100001, samples_per_prompt: 100}\n"),
      testing::Contains("job.yaml:9: eval.rows: 100001 rows with 100 samples each are more "
                        "than 10000000 samples; evaluate fewer rows or samples"));
}

}  // namespace
}  // namespace freshet
