#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/job_explain.h"
#include "job/job_yaml.h"
#include "tests/job/job_text.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The errors of a minimal job with `line` added.
std::vector<std::string> With(const std::string& line) {
  return ErrorLines(MinimalJob() + line + "\n");
}
std::vector<std::string> WithReward(const std::string& reward) {
  return ErrorLines(MinimalJobWith(6, "reward: " + reward));
}

TEST(EnvironmentKeys, HaveDefaults) {
  const JobResult job = ParseJob(MinimalJob() + "environment: {type: guess_number}\n", "job.yaml");
  ASSERT_THAT(job.errors, IsEmpty());
  const job::v1::Environment& environment = job.spec.environment();
  EXPECT_EQ(environment.max_turns(), 8);
  EXPECT_EQ(environment.step_timeout_ms(), 5000);
  EXPECT_EQ(environment.max_turn_tokens(), 4) << "rollout.max_new_tokens";
  EXPECT_FALSE(environment.has_address());
}

TEST(EnvironmentKeys, WithoutTheBlockThereIsNone) {
  const JobResult job = ParseJob(MinimalJob(), "job.yaml");
  EXPECT_FALSE(job.spec.has_environment());
  EXPECT_EQ(job.spec.pool(), "default");
}

TEST(EnvironmentKeys, SurviveBeingWrittenAndReadAgain) {
  const std::string text =
      MinimalJob() +
      "environment: {type: grpc, address: \"[::1]:7100\", max_turns: 3, step_timeout_ms: 10, "
      "max_turn_tokens: 2, options: {max: \"100\", reward: bits}}\npool: large\n";
  const JobResult job = ParseJob(text, "job.yaml");
  ASSERT_THAT(job.errors, IsEmpty());
  const JobResult again = ParseJob(WriteJobYaml(job.spec), "job.yaml");
  ASSERT_THAT(again.errors, IsEmpty());
  EXPECT_EQ(again.spec.environment().options().at("max"), "100");
  EXPECT_EQ(again.spec.environment().address(), "[::1]:7100");
  EXPECT_EQ(WriteJobYaml(again.spec), WriteJobYaml(job.spec));
}

TEST(EnvironmentKeys, SeveralConversations) {
  const std::string agent = "environment: {type: openai_agent, address: \"a:1\"";
  const JobResult one = ParseJob(MinimalJob() + agent + "}\n", "job.yaml");
  EXPECT_EQ(one.spec.environment().max_conversations(), 1);
  EXPECT_THAT(With(agent + ", max_conversations: 256}"), IsEmpty());
  EXPECT_THAT(With(agent + ", max_conversations: 4}\nloss: {credit: turn}"), IsEmpty())
      << "a conversation is a turn";
  EXPECT_THAT(With("environment: {type: grpc, address: \"a:1\", max_conversations: 2}"),
              ElementsAre("job.yaml:9: environment.max_conversations: above 1 needs "
                          "environment.observations messages: only messages can begin another "
                          "conversation"));
  EXPECT_THAT(With("environment: {type: calculator, max_conversations: 2}"),
              ElementsAre("job.yaml:9: environment.max_conversations: applies only with type grpc "
                          "or openai_agent, not with calculator; remove it"));
  EXPECT_THAT(
      ErrorLines(MinimalJob() + agent + ", max_conversations: 256}\n",
                 {"rollout.max_new_tokens=65537", "model.config.max_position_embeddings=1048576"}),
      testing::Contains(HasSubstr("max_conversations: times rollout.max_new_tokens 65537 "
                                  "must be at most 16777216 tokens")));
}

TEST(EnvironmentKeys, BudgetsOfAnEpisode) {
  EXPECT_THAT(With("environment: {type: openai_agent, address: \"a:1\", max_episode_tokens: 5}"),
              IsEmpty());
  EXPECT_THAT(With("environment: {type: calculator, max_episode_tokens: 16777217}"),
              ElementsAre(HasSubstr("environment.max_episode_tokens: must be")));
  const std::string grpc = "environment: {type: grpc, address: \"a:1\", max_cost: ";
  EXPECT_THAT(With(grpc + "0.5}"), IsEmpty());
  EXPECT_THAT(With(grpc + "0}"), ElementsAre(HasSubstr("environment.max_cost: must be")));
  EXPECT_THAT(With("environment: {type: openai_agent, address: \"a:1\", max_cost: 1}"),
              ElementsAre("job.yaml:9: environment.max_cost: applies only with type grpc, not with "
                          "openai_agent; remove it"));
}

TEST(EnvironmentKeys, AreChecked) {
  EXPECT_THAT(With("environment: {}"),
              ElementsAre("job.yaml:9: environment.type: is required but missing; give one of "
                          "guess_number, calculator, grpc, openai_agent"));
  EXPECT_THAT(With("environment: {type: gess_number}"),
              ElementsAre("job.yaml:9: environment.type: must be one of guess_number, calculator, "
                          "grpc, openai_agent, got 'gess_number'; did you mean "
                          "guess_number?"));
  EXPECT_THAT(With("environment: {type: grpc}"),
              ElementsAre("job.yaml:9: environment.address: is required but missing"));
  EXPECT_THAT(With("environment: {type: calculator, address: \"a:1\"}"),
              ElementsAre("job.yaml:9: environment.address: applies only with type grpc or "
                          "openai_agent, not with calculator; remove it"));
  EXPECT_THAT(With("environment: {type: calculator, max_turns: 0}"),
              ElementsAre("job.yaml:9: environment.max_turns: must be from 1 to 1000, got 0"));
  EXPECT_THAT(With("environment: {type: calculator, max_turn_tokens: 5}"),
              ElementsAre("job.yaml:9: environment.max_turn_tokens: must be at most "
                          "rollout.max_new_tokens 4, the tokens of the whole episode, got 5"));
  EXPECT_THAT(With("environment: {type: calculator, observations: messages}"),
              ElementsAre("job.yaml:9: environment.observations: messages needs the block "
                          "dataset.chat, which renders prompts with the model's chat template"));
  EXPECT_THAT(With("environment: {type: calculator, options: {\"a.b\": x}}"),
              ElementsAre("job.yaml:9: environment.options.a.b: the name of an option is at most "
                          "63 letters, digits, '_' and '-', starting with a letter or a digit"));
  EXPECT_THAT(
      With("environment: {type: calculator, options: {a: \"" + std::string(4097, 'x') + "\"}}"),
      ElementsAre("job.yaml:9: environment.options.a: its length in bytes must be at most 4096, "
                  "got 4097"));
}

TEST(EnvironmentKeys, AnEpisodeMayBeShorterThanTheRowsAnswer) {
  // An answer to an arithmetic row has 3 characters.
  const std::string job = MinimalJobWith(5, "rollout: {max_new_tokens: 2}");
  EXPECT_THAT(ErrorLines(job + "environment: {type: calculator}\n"), IsEmpty());
  EXPECT_THAT(ErrorLines(job), testing::SizeIs(1));
}

TEST(Addresses, AreHostAndPort) {
  const auto errors = [](const std::string& address) {
    return With("environment: {type: grpc, address: \"" + address + "\"}");
  };
  for (const char* good : {"localhost:7100", "10.0.0.1:1", "a.b-c:65535", "[::1]:80"}) {
    EXPECT_THAT(errors(good), IsEmpty()) << good;
  }
  for (const char* bad : {"localhost", "localhost:", ":80", "a:0", "a:65536", "a:99999999999999",
                          "a:-1", "a:8x", "::1:80", "http://a:80", "a b:80"}) {
    EXPECT_THAT(errors(bad),
                ElementsAre(StrCat("job.yaml:9: environment.address: must be HOST:PORT, as in "
                                   "\"localhost:7100\", got '",
                                   bad, "'")));
  }
}

TEST(RewardServices, AreNamedByAddress) {
  EXPECT_THAT(WithReward("{components: {mine: {type: grpc, address: \"localhost:9000\"}}}"),
              IsEmpty());
  EXPECT_THAT(WithReward("{components: {mine: {type: grpc}}}"),
              ElementsAre("job.yaml:6: reward.components.mine.address: is required but missing"));
  EXPECT_THAT(WithReward("{components: {mine: {type: grpc, address: nowhere}}}"),
              ElementsAre("job.yaml:6: reward.components.mine.address: must be HOST:PORT, as in "
                          "\"localhost:7100\", got 'nowhere'"));
  EXPECT_THAT(WithReward("{components: {mine: {type: length, max_tokens: 3, timeout_ms: 5}}}"),
              ElementsAre("job.yaml:6: reward.components.mine.timeout_ms: applies only with type "
                          "grpc or math or python or code or judge or reward_model, not with "
                          "length; remove it"));
}

TEST(PythonRewards, AreNamedByTheirFunction) {
  EXPECT_THAT(WithReward("{components: {a: {type: math, timeout_ms: 500}}}"), IsEmpty());
  EXPECT_THAT(WithReward("{components: {a: {type: python, function: my.style-2}}}"), IsEmpty());
  EXPECT_THAT(WithReward("{components: {a: {type: python}}}"),
              ElementsAre("job.yaml:6: reward.components.a.function: is required but missing"));
  EXPECT_THAT(WithReward("{components: {a: {type: python, function: ../x}}}"),
              ElementsAre("job.yaml:6: reward.components.a.function: must be letters, digits, '_', "
                          "'-' and '.', starting with a letter or a digit; got '../x'"));
}

TEST(CodeReward, HasItsDefaults) {
  const JobResult job = ParseJob(
      MinimalJobWith(
          6, "reward: {timeout_ms: 20000, components: {a: {type: code, text: \"{answer}\"}}}"),
      "job.yaml");
  EXPECT_THAT(job.errors, IsEmpty());
  const job::v1::RewardComponent& code = job.spec.reward().components().at("a");
  EXPECT_EQ(code.language(), "python");
  EXPECT_EQ(code.grading(), "all");
  EXPECT_EQ(code.test_timeout_ms(), 5000);
  EXPECT_EQ(code.timeout_ms(), 20000);
}

TEST(CodeReward, ACallHasTimeForATest) {
  EXPECT_THAT(WithReward("{components: {a: {type: code, text: x}}}"),
              ElementsAre("job.yaml:6: reward.components.a.timeout_ms: must be above "
                          "test_timeout_ms 5000, the time of one test, got 1000; raise "
                          "reward.timeout_ms"));
  EXPECT_THAT(WithReward("{timeout_ms: 20000, components: {a: {type: code, text: x, language: "
                         "rust}}}"),
              ElementsAre("job.yaml:6: reward.components.a.language: must be one of python, cpp, "
                          "javascript, bash, got 'rust'"));
}

TEST(JudgeReward, SeesPromptAnswerAndResponse) {
  const JobResult job = ParseJob(
      MinimalJobWith(6,
                     "reward: {components: {a: {type: judge, model: m, text: \"{prompt} {answer} "
                     "{response}\", criteria: {brief: is short}}}}"),
      "job.yaml");
  EXPECT_THAT(job.errors, IsEmpty());
  const job::v1::RewardComponent& judge = job.spec.reward().components().at("a");
  EXPECT_EQ(judge.max_answer_tokens(), 1024);
  EXPECT_TRUE(judge.structured_output());
  EXPECT_FALSE(judge.has_max_score());
  EXPECT_EQ(WriteJobYaml(ParseJob(WriteJobYaml(job.spec), "job.yaml").spec),
            WriteJobYaml(job.spec));
}

TEST(JudgeReward, NamesWhatIsWrong) {
  EXPECT_THAT(WithReward("{components: {a: {type: judge, text: \"{response}\"}}}"),
              ElementsAre("job.yaml:6: reward.components.a.model: is required but missing"));
  EXPECT_THAT(WithReward("{components: {a: {type: judge, model: m}}}"),
              ElementsAre("job.yaml:6: reward.components.a.text: is required but missing"));
  EXPECT_THAT(
      WithReward("{components: {a: {type: judge, model: m, text: \"{response}\", criteria: "
                 "{reason: x}}}}"),
      ElementsAre(HasSubstr("reward.components.a.criteria.reason: the name of a criterion")));
}

TEST(RewardServices, ACallFitsIntoTheTimeOfASample) {
  const auto timeout = [](const std::string& reward_ms, const std::string& own) {
    return WithReward("{timeout_ms: " + reward_ms +
                      ", components: {mine: {type: grpc, address: \"a:1\"" + own + "}}}");
  };
  EXPECT_THAT(timeout("300", ", timeout_ms: 300"), IsEmpty());
  EXPECT_THAT(timeout("300", ", timeout_ms: 301"),
              ElementsAre("job.yaml:6: reward.components.mine.timeout_ms: must be at most "
                          "reward.timeout_ms 300, the time for one sample, got 301"));
  const JobResult job =
      ParseJob(MinimalJobWith(6,
                              "reward: {timeout_ms: 700, components: {mine: {type: grpc, address: "
                              "\"a:1\"}}}"),
               "job.yaml");
  EXPECT_EQ(job.spec.reward().components().at("mine").timeout_ms(), 700);
}

TEST(RewardServices, AreCalledSoOftenAtOnce) {
  const std::string components = ", components: {mine: {type: grpc, address: \"a:1\"}}}";
  const auto parallel = [&components](const std::string& reward) {
    return ParseJob(MinimalJobWith(6, "reward: {" + reward + components), "job.yaml")
        .spec.reward()
        .parallel();
  };
  EXPECT_EQ(parallel("timeout_ms: 700"), 16);
  EXPECT_EQ(parallel("parallel: 1024"), 1024);
  EXPECT_THAT(WithReward("{parallel: 0" + components),
              ElementsAre("job.yaml:6: reward.parallel: must be from 1 to 1024, got 0"));
  EXPECT_THAT(WithReward("{parallel: 1025" + components),
              ElementsAre("job.yaml:6: reward.parallel: must be from 1 to 1024, got 1025"));
}

TEST(EnvironmentReward, NeedsAnEnvironment) {
  const std::string job = MinimalJobWith(6, "reward: {components: {own: {type: environment}}}");
  EXPECT_THAT(ErrorLines(job + "environment: {type: guess_number}\n"), IsEmpty());
  EXPECT_THAT(ErrorLines(job),
              ElementsAre("job.yaml:6: reward.components.own.type: environment is the reward that "
                          "an environment gives, but the job has none; add the block environment"));
}

TEST(Pool, IsAName) {
  EXPECT_THAT(With("pool: large-1"), IsEmpty());
  EXPECT_THAT(With("pool: a/b"),
              ElementsAre("job.yaml:9: pool: must be letters, digits, '_' and '-', starting with a "
                          "letter or a digit; got 'a/b'"));
}

TEST(ServiceKeys, AreExplained) {
  EXPECT_THAT(*ExplainKey("environment.max_turn_tokens"),
              HasSubstr("  when absent: rollout.max_new_tokens\n"));
  EXPECT_THAT(*ExplainKey("reward.components.mine.address"),
              HasSubstr("  applies with: type grpc\n"));
  EXPECT_THAT(*ExplainKey("environment.options"), HasSubstr("  type: map of name to text\n"));
  EXPECT_THAT(*ExplainKey("weight_sync.timeout_ms"), HasSubstr("50 MB/s"));
}

}  // namespace
}  // namespace freshet
