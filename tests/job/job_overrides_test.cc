#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/job/job_text.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

JobSpec ParsedWith(const std::vector<std::string>& overrides) {
  const JobResult result = ParseJob(MinimalJob(), "job.yaml", overrides);
  EXPECT_EQ(FormatConfigErrors(result.errors), "");
  return result.spec;
}

TEST(Overrides, SetsNestedKeysAndMapEntries) {
  const JobSpec spec = ParsedWith({"rollout.max_new_tokens=5", "staleness.max=4",
                                   "reward.components.exact.weight=2", "loss.clip.high=0.3"});
  EXPECT_EQ(spec.rollout().max_new_tokens(), 5);
  EXPECT_EQ(spec.staleness().max(), 4);
  EXPECT_EQ(spec.reward().components().at("exact").weight(), 2.0);
  EXPECT_EQ(spec.loss().clip().high(), 0.3);
}

TEST(Overrides, LaterOneWins) {
  EXPECT_EQ(ParsedWith({"trainer.steps=2", "trainer.steps=3"}).trainer().steps(), 3);
}

TEST(Overrides, AddsAMapEntry) {
  const JobSpec spec = ParsedWith({"reward.components.brief={type: length, max_tokens: 4}"});
  EXPECT_EQ(spec.reward().components().at("brief").max_tokens(), 4);
  EXPECT_EQ(spec.reward().components_size(), 2);
}

TEST(Overrides, TextIsTakenAsItIs) {
  EXPECT_EQ(ParsedWith({"reward.components.exact.text=a: {answer} # c, \"d\" = e"})
                .reward()
                .components()
                .at("exact")
                .text(),
            "a: {answer} # c, \"d\" = e");
  EXPECT_EQ(ParsedWith({"name=007"}).name(), "007");
  EXPECT_EQ(ParsedWith({"name=null"}).name(), "null");
}

TEST(Overrides, ReplacesAndAppendsListItems) {
  const std::string job = MinimalJobWith(5, "rollout: {max_new_tokens: 4, stop_token_ids: [3, 4]}");
  const JobResult result =
      ParseJob(job, "job.yaml", {"rollout.stop_token_ids.1=7", "rollout.stop_token_ids.2=8"});
  EXPECT_EQ(FormatConfigErrors(result.errors), "");
  EXPECT_THAT(result.spec.rollout().stop_token_ids(), ElementsAre(3, 7, 8));
}

TEST(Overrides, ReplacesAFieldOfATemplateRow) {
  const std::string job = MinimalJobWith(
      4, "dataset: {type: template, prompt: \"{a}\", answer: b, rows: [{a: \"1\", b: \"2\"}]}");
  const JobResult result = ParseJob(job, "job.yaml", {"dataset.rows.0.a=9"});
  EXPECT_EQ(FormatConfigErrors(result.errors), "");
  EXPECT_EQ(result.spec.dataset().rows(0).values().at("a"), "9");
}

TEST(Overrides, WholeListsAndBlocksAreYaml) {
  const JobSpec spec = ParsedWith({"rollout.stop_token_ids=[1, 2]", "eval={rows: 3}"});
  EXPECT_THAT(spec.rollout().stop_token_ids(), ElementsAre(1, 2));
  EXPECT_EQ(spec.eval().rows(), 3);
}

TEST(Overrides, NullRemovesABlock) {
  const JobSpec spec = ParsedWith({"eval={rows: 3}", "eval=null"});
  EXPECT_FALSE(spec.has_eval());
}

TEST(Overrides, MakesBlocksThatTheFileLacks) {
  EXPECT_EQ(
      ParsedWith({"warmup.sft.steps=3", "warmup.sft.learning_rate=0.1"}).warmup().sft().steps(), 3);
}

TEST(Overrides, FaultsNameSet) {
  struct Case {
    const char* set;
    const char* error;
  };
  for (const Case& c : {
           Case{"rollout.max_new_tokns=4",
                "--set: rollout.max_new_tokns: unknown key; did you mean max_new_tokens?"},
           Case{"trainer.steps=many", "--set: trainer.steps: expected an integer, got 'many'"},
           Case{"trainer.steps=", "--set: trainer.steps: expected an integer, got ''"},
           Case{"trainer.steps=0", "--set: trainer.steps: must be from 1 to 10000000, got 0"},
           Case{"staleness.max=-1", "--set: staleness.max: must be from 0 to 1024, got -1"},
           Case{
               "staleness.policy=dorp",
               "--set: staleness.policy: must be one of wait, drop, requeue, mask, got 'dorp'; did "
               "you mean drop?"},
           Case{"trainer", "--set: 'trainer' is not of the form key=value"},
           Case{"=1", "--set: '=1' is not of the form key=value"},
           Case{"name.x=1", "--set: name.x: is below a value that is not a block"},
           Case{"trainer=5",
                "--set: trainer: expected a block with the keys steps, minibatches_per_step, "
                "max_tokens_per_microbatch, threads, activation_checkpointing, ranks, device, "
                "sharding, rank_wait_ms, got "
                "'5'"},
           Case{"eval={rows: [}", "--set: eval: the value is not valid YAML: illegal flow end"},
           Case{"rollout.stop_token_ids.x=1",
                "--set: rollout.stop_token_ids: expected a list, got a "
                "block of keys"},
           Case{"eval=[[[[*a]]]]",
                "--set: eval: the value is not valid YAML: the referenced anchor is not defined"},
       }) {
    EXPECT_THAT(ErrorLines(MinimalJob(), {c.set}), ElementsAre(c.error)) << c.set;
  }
}

TEST(Overrides, IndexBeyondTheListIsAFault) {
  const std::string job = MinimalJobWith(5, "rollout: {max_new_tokens: 4, stop_token_ids: [3, 4]}");
  EXPECT_THAT(
      ErrorLines(job, {"rollout.stop_token_ids.5=1"}),
      ElementsAre("--set: rollout.stop_token_ids.5: index 5 is beyond the list; give a number "
                  "from 0 to 2"));
  EXPECT_THAT(ErrorLines(job, {"rollout.stop_token_ids.x=1"}),
              ElementsAre("--set: rollout.stop_token_ids.x: 'x' is not an index of a list; give a "
                          "number from 0 to 2"));
}

TEST(Overrides, VeryLongPathIsOneShortFault) {
  std::string path = "a";
  for (int i = 0; i < 100000; ++i) path += ".a";
  EXPECT_THAT(ErrorLines(MinimalJob(), {path + "=1"}),
              ElementsAre("--set: 'a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a....' is no key: it has "
                          "100001 parts, a key has at most 16"));
}

TEST(Overrides, MendAFaultOfTheFile) {
  EXPECT_THAT(ErrorLines(MinimalJobWith(7, "trainer: {steps: -5}"), {"trainer.steps=5"}),
              IsEmpty());
}

}  // namespace
}  // namespace freshet
