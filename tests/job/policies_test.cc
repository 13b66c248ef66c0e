#include "job/policies.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/job/job_text.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// MinimalJob() with `policies`, which begin in line 9.
std::string Team(const std::string& policies) { return MinimalJob() + "policies:\n" + policies; }

std::string TeamErrors(const std::string& policies,
                       const std::vector<std::string>& overrides = {}) {
  return FormatConfigErrors(ParseJobFile(Team(policies), "team.yaml", overrides).errors, 100);
}

// The specs of the file's jobs, which has no errors.
std::vector<JobSpec> Specs(const std::string& policies,
                           const std::vector<std::string>& overrides = {}) {
  const JobFile file = ParseJobFile(Team(policies), "team.yaml", overrides);
  EXPECT_EQ(FormatConfigErrors(file.errors), "");
  std::vector<JobSpec> specs;
  for (const JobResult& job : file.jobs) specs.push_back(job.spec);
  return specs;
}

TEST(Policies, EachIsAJobOfTheTeam) {
  const JobFile file = ParseJobFile(Team("  planner:\n  worker: {seed: 7}\n"), "team.yaml");
  EXPECT_EQ(FormatConfigErrors(file.errors), "");
  ASSERT_EQ(file.jobs.size(), 2u);
  EXPECT_EQ(file.jobs[0].policy, "planner");
  EXPECT_EQ(file.jobs[1].policy, "worker");
  EXPECT_EQ(file.jobs[0].spec.name(), "tiny-planner");
  EXPECT_EQ(file.jobs[1].spec.name(), "tiny-worker");
  EXPECT_EQ(file.jobs[0].spec.team(), "tiny");
  EXPECT_EQ(file.jobs[0].spec.seed(), 1);
  EXPECT_EQ(file.jobs[1].spec.seed(), 7);
}

TEST(Policies, BlocksAreMergedAndOtherValuesReplaced) {
  const std::vector<JobSpec> specs = Specs(
      "  a: {trainer: {minibatches_per_step: 2}, rollout: {max_new_tokens: 3}}\n"
      "  b: {reward: {components: {brief: {type: length, max_tokens: 3}}},\n"
      "      rollout: {stop_token_ids: [3]}}\n",
      {"rollout.stop_token_ids=[4, 5]", "policies.b.rollout.stop_token_ids=[6]"});
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[0].trainer().steps(), 10);
  EXPECT_EQ(specs[0].trainer().minibatches_per_step(), 2);
  EXPECT_EQ(specs[0].rollout().max_new_tokens(), 3);
  EXPECT_EQ(specs[0].reward().components_size(), 1);
  EXPECT_EQ(specs[1].reward().components_size(), 2);
  EXPECT_EQ(specs[1].rollout().max_new_tokens(), 4);
  EXPECT_THAT(specs[0].rollout().stop_token_ids(), ElementsAre(4, 5));
  EXPECT_THAT(specs[1].rollout().stop_token_ids(), ElementsAre(6));
}

TEST(Policies, ABlockWithoutAValueRemovesThatOfTheFile) {
  const std::string yaml =
      Team("  a: {warmup: }\n  b:\n") + "warmup: {sft: {steps: 5, learning_rate: 0.1}}\n";
  const JobFile file = ParseJobFile(yaml, "team.yaml");
  EXPECT_EQ(FormatConfigErrors(file.errors), "");
  EXPECT_FALSE(file.jobs[0].spec.warmup().has_sft());
  EXPECT_TRUE(file.jobs[1].spec.warmup().has_sft());
}

TEST(Policies, OverridesAreForAllOrForOne) {
  const std::vector<JobSpec> specs =
      Specs("  a: {seed: 2}\n  b: {seed: 3}\n",
            {"seed=4", "policies.b.seed=5", "name=other", "policies.a.trainer.steps=6"});
  EXPECT_EQ(specs[0].seed(), 4);
  EXPECT_EQ(specs[1].seed(), 5);
  EXPECT_EQ(specs[1].name(), "other-b");
  EXPECT_EQ(specs[0].team(), "other");
  EXPECT_EQ(specs[0].trainer().steps(), 6);
  EXPECT_EQ(specs[1].trainer().steps(), 10);
}

TEST(Policies, ErrorsNameThePolicyOfTheKey) {
  const std::string errors =
      TeamErrors("  a:\n    seed: many\n  b:\n    loss: {preset: ppp}\n    trainer: {stepz: 1}\n");
  EXPECT_THAT(errors,
              HasSubstr("team.yaml:11: policies.a.seed: expected an integer, got 'many'\n"));
  EXPECT_THAT(errors, HasSubstr("team.yaml:13: policies.b.loss.preset: "));
  EXPECT_THAT(errors,
              HasSubstr("team.yaml:14: policies.b.trainer.stepz: unknown key; did you mean"));
}

TEST(Policies, AnErrorOfAllPoliciesIsToldOnce) {
  const std::string yaml = MinimalJobWith(7, "trainer: {stepz: 10}") + "policies: {a: {}, b: {}}\n";
  const JobFile file = ParseJobFile(yaml, "team.yaml");
  std::vector<std::string> lines;
  for (const ConfigError& error : file.errors) lines.push_back(FormatConfigError(error));
  EXPECT_THAT(lines, ElementsAre(HasSubstr("team.yaml:7: trainer.stepz: unknown key"),
                                 HasSubstr("team.yaml:7: trainer.steps: ")));
}

TEST(Policies, AnErrorThatOnePolicyMakesInAKeyOfTheFileNamesIt) {
  EXPECT_THAT(TeamErrors("  a: {prompts_per_step: 5}\n  b:\n", {"trainer.minibatches_per_step=2"}),
              HasSubstr("policies.a.trainer.minibatches_per_step: must divide prompts_per_step 5"));
}

TEST(Policies, AgentsHaveTheSameGroupSize) {
  const std::string agents =
      "  a: {environment: {type: openai_agent, address: \"h:1\"}}\n"
      "  b: {environment: {type: openai_agent, address: \"h:2\"}, group_size: 3}\n";
  EXPECT_EQ(TeamErrors(agents),
            "team.yaml:11: policies.b.group_size: must be that of policy a, 8, because agents play "
            "each sample together; got 3\n");
  EXPECT_EQ(TeamErrors(agents, {"group_size=4"}), "");
  EXPECT_EQ(TeamErrors("  a:\n  b: {group_size: 3}\n"), "");
}

TEST(Policies, OnlyAnAgentOfATeamMayNotBeAsked) {
  const std::string agents =
      "  a: {environment: {type: openai_agent, address: \"h:1\"}}\n"
      "  b: {environment: {type: openai_agent, address: \"h:2\"}, loss: {not_asked: duplicate}}\n";
  EXPECT_EQ(TeamErrors(agents), "");
  EXPECT_THAT(TeamErrors("  a: {loss: {not_asked: duplicate}}\n  b:\n"),
              HasSubstr("team.yaml:10: policies.a.loss.not_asked: duplicate needs a policy of a "
                        "team, with environment.type openai_agent"));
}

TEST(Policies, OverridesOfAPolicyAreNamedInErrors) {
  EXPECT_THAT(TeamErrors("  a:\n  b:\n", {"policies.a.seed=x"}),
              HasSubstr("--set: policies.a.seed: expected an integer"));
  for (const char* text : {"policies.c.seed=1", "policies.a=1", "policies.=1", "policies.a.name=x",
                           "policies.a.team=x"}) {
    EXPECT_THAT(TeamErrors("  a:\n  b:\n", {text}), HasSubstr("--set: policies.")) << text;
  }
  EXPECT_THAT(TeamErrors("  a:\n  b:\n", {"team=x"}), HasSubstr("--set: team: is set to"));
}

TEST(Policies, BoundsAndNames) {
  EXPECT_THAT(TeamErrors("  a:\n"),
              HasSubstr("team.yaml:9: policies: want 2 to 16 policies, got 1"));
  std::string many;
  for (int i = 0; i < 17; ++i) many += StrCat("  p", i, ":\n");
  EXPECT_THAT(TeamErrors(many), HasSubstr("got 17"));
  EXPECT_THAT(TeamErrors("  A:\n  b:\n"), HasSubstr("team.yaml:10: policies.A: is no name"));
  EXPECT_THAT(TeamErrors("  \"\":\n  b:\n"), HasSubstr("is no name"));
  EXPECT_THAT(TeamErrors("  a:\n  a:\n"), HasSubstr("team.yaml:11: policies.a: is given twice"));
  EXPECT_THAT(TeamErrors("  a: [1]\n  b:\n"), HasSubstr("policies.a: expected a block"));
  EXPECT_THAT(TeamErrors("  [a, b]\n"), HasSubstr("policies: expected a map"));
}

TEST(Policies, KeysOfTheFileCannotDiffer) {
  for (const char* key : {"name: x", "team: x", "policies: {}"}) {
    EXPECT_THAT(TeamErrors(StrCat("  a: {", key, "}\n  b:\n")),
                HasSubstr("is a key of the whole file"))
        << key;
  }
  EXPECT_THAT(TeamErrors("  a:\n  b:\nteam: x\n"), HasSubstr("team.yaml:12: team: "));
}

TEST(Policies, KeysThatAreGivenTwiceAreFound) {
  EXPECT_THAT(TeamErrors("  a: {seed: 1, seed: 2}\n  b:\n"),
              HasSubstr("policies.a.seed: is given twice"));
  EXPECT_THAT(TeamErrors("  a: {trainer: {steps: 1, steps: 2}}\n  b:\n"),
              HasSubstr("policies.a.trainer.steps: is given twice"));
}

TEST(Policies, ALongNameIsRefused) {
  EXPECT_THAT(TeamErrors("  a:\n  b:\n", {"name=" + std::string(62, 'n')}), HasSubstr("name: "));
}

TEST(Policies, OneJobOfTheFile) {
  const std::string yaml = Team("  a: {seed: 2}\n  b:\n");
  const JobResult job = ParseJob(yaml, "team.yaml", {"policies.b.seed=9"}, "b");
  EXPECT_THAT(job.errors, IsEmpty());
  EXPECT_EQ(job.spec.name(), "tiny-b");
  EXPECT_EQ(job.spec.seed(), 9);
  EXPECT_EQ(FormatConfigErrors(ParseJob(yaml, "team.yaml", {}, "c").errors),
            "team.yaml: policies: the file has no policy 'c'\n");
  EXPECT_THAT(FormatConfigErrors(ParseJob(yaml, "team.yaml").errors),
              HasSubstr("the file has several jobs"));
  EXPECT_THAT(FormatConfigErrors(ParseJob(MinimalJob(), "job.yaml", {}, "a").errors),
              HasSubstr("no policy 'a'"));
}

TEST(Policies, OnlyTheJobThatIsWantedIsExpanded) {
  const YamlNode root = ParseYamlTree(Team("  a: {seed: 2}\n  b: {seed: 3}\n")).root;
  const JobTrees trees = ExpandPolicies(root, {}, KeyPlaces(), "a");
  ASSERT_EQ(trees.jobs.size(), 1u);
  EXPECT_EQ(trees.jobs[0].policy, "a");
  EXPECT_THAT(ExpandPolicies(root, {}, KeyPlaces(), "c").jobs, IsEmpty());
  EXPECT_THAT(ExpandPolicies(root, {}, KeyPlaces(), "").jobs, IsEmpty());
}

TEST(Policies, LaterErrorsNameThePolicyToo) {
  const JobFile file = ParseJobFile(Team("  a:\n    seed: 2\n  b:\n"), "team.yaml");
  EXPECT_EQ(FormatConfigError(file.jobs[0].places.At("seed", "is odd")),
            "team.yaml:11: policies.a.seed: is odd");
  EXPECT_EQ(FormatConfigError(file.jobs[1].places.At("trainer.steps", "is odd")),
            "team.yaml:7: trainer.steps: is odd");
}

}  // namespace
}  // namespace freshet
