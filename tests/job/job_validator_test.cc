#include "job/job_validator.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/job/job_text.h"

namespace freshet {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Case {
  int line;  // line of MinimalJob() to replace; 9 appends
  const char* text;
  const char* error;  // expected error; nullptr: none
};

void Check(const Case& c) {
  const std::string job =
      c.line == 9 ? MinimalJob() + c.text + "\n" : MinimalJobWith(c.line, c.text);
  if (c.error == nullptr) {
    EXPECT_THAT(ErrorLines(job), IsEmpty()) << c.text;
  } else {
    EXPECT_THAT(ErrorLines(job), ElementsAre(c.error)) << c.text;
  }
}

TEST(Validator, MinimalJobIsValid) { EXPECT_THAT(ErrorLines(MinimalJob()), IsEmpty()); }

TEST(Validator, Ranges) {
  for (const Case& c : {
           Case{9, "staleness: {max: -1}",
                "job.yaml:9: staleness.max: must be from 0 to 1024, got -1"},
           Case{9, "staleness: {max: 0}", nullptr},
           Case{9, "staleness: {max: 1024}", nullptr},
           Case{9, "staleness: {max: 1025}",
                "job.yaml:9: staleness.max: must be from 0 to 1024, got 1025"},
           Case{5, "rollout: {max_new_tokens: 4, temperature: 0}",
                "job.yaml:5: rollout.temperature: must be from 1e-04 to 100, got 0.0"},
           Case{5, "rollout: {max_new_tokens: 4, top_p: 1.5}",
                "job.yaml:5: rollout.top_p: must be more than 0 and at most 1, got 1.5"},
           Case{5, "rollout: {max_new_tokens: 4, min_new_tokens: 5}",
                "job.yaml:5: rollout.min_new_tokens: must be at most rollout.max_new_tokens 4, got "
                "5"},
           Case{5, "rollout: {max_new_tokens: 4, min_p: 0.1, stop: [a, \"\"]}",
                "job.yaml:5: rollout.stop.1: must have 1 to 1024 bytes, got 0"},
           Case{5, "rollout: {max_new_tokens: 4, max_inflight_groups: 0}",
                "job.yaml:5: rollout.max_inflight_groups: must be from 1 to 1048576, got 0"},
           Case{9, "eval: {rows: 10, temperature: 0}", nullptr},
           Case{9, "checkpoint: {keep_best: 1}",
                "job.yaml:9: checkpoint.keep_best: needs evaluations; add eval, or remove it"},
           Case{9, "checkpoint: {keep_best: 1, every_steps: 30}\neval: {rows: 10}",
                "job.yaml:9: checkpoint.keep_best: checkpoint.every_steps must be a multiple of "
                "eval.every_steps 20, so that each checkpoint is evaluated; got 30"},
           Case{9, "checkpoint: {keep_best: 1, every_steps: 40}\neval: {rows: 10}", nullptr},
           Case{1, "name: \"\"", "job.yaml:1: name: must not be empty"},
           Case{9, "weight_sync: {every_steps: 0}",
                "job.yaml:9: weight_sync.every_steps: must be from 1 to 1024, got 0"},
           Case{9, "weight_sync: {transport: shm, timeout_ms: 100}", nullptr},
           Case{9, "weight_sync: {transport: tcp}",
                "job.yaml:9: weight_sync.transport: must be one of auto, inprocess, shm, cuda_ipc, "
                "grpc_relay, nccl, gloo, got 'tcp'"},
           Case{9, "weight_sync: {timeout_ms: 99}",
                "job.yaml:9: weight_sync.timeout_ms: must be from 100 to 3600000, got 99"},
           Case{9, "loss: {clip: {low: 0}}",
                "job.yaml:9: loss.clip.low: must be more than 0 and at most 1, got 0.0"},
           Case{9, "loss: {preset: grop}",
                "job.yaml:9: loss.preset: must be one of grpo, dr_grpo, dapo, rloo, reinforce_pp, "
                "gspo, cispo, decoupled_ppo, icepop, got 'grop'; did you mean grpo?"},
       }) {
    Check(c);
  }
}

TEST(Validator, CreditByTurnNeedsTurns) {
  for (const Case& c : {
           Case{9, "loss: {credit: turn}",
                "job.yaml:9: loss.credit: turn needs an environment that rewards turns; add the "
                "block environment, of another type than openai_agent, or with max_conversations "
                "above 1"},
           Case{9, "loss: {credit: turn, turn_discount: 0.9}\nenvironment: {type: guess_number}",
                nullptr},
           Case{9, "loss: {turn_discount: 0.9}",
                "job.yaml:9: loss.turn_discount: applies only with credit turn, not with sample; "
                "remove it"},
       }) {
    Check(c);
  }
}

TEST(Validator, Filters) {
  for (const Case& c : {
           Case{9, "filter: {min_mean_reward: 0.1, max_mean_reward: 0.9}", nullptr},
           Case{9, "filter: {min_mean_reward: 0.5, max_mean_reward: 0.5}", nullptr},
           Case{9, "filter: {min_mean_reward: 0.9, max_mean_reward: 0.1}",
                "job.yaml:9: filter.min_mean_reward: must be at most max_mean_reward 0.1, got 0.9; "
                "every group would be filtered"},
           Case{9, "group_size: 1\nloss: {preset: reinforce_pp}\nfilter: {zero_variance: true}",
                "job.yaml:11: filter.zero_variance: needs a group_size of at least 2, got 1; every "
                "group would be filtered"},
       }) {
    Check(c);
  }
}

TEST(Validator, Replay) {
  for (const Case& c : {
           Case{9, "replay: {max_age: 2, min_reward: 1}", nullptr},
           Case{9, "replay: {min_reward: 1}",
                "job.yaml:9: replay.max_age: is required but missing"},
           Case{9, "replay: {max_age: 2}",
                "job.yaml:9: replay.min_reward: is required but missing"},
           Case{9, "staleness: {max: 2}\nreplay: {max_age: 2, min_reward: 1}",
                "job.yaml:10: replay.max_age: must be more than staleness.max 2, got 2"},
           Case{
               9, "staleness: {max: 0}\nreplay: {max_age: 2, min_reward: 1}",
               "job.yaml:10: replay: needs staleness.max of at least 1: with 0, a step trains only "
               "on samples of its own version, and a run is repeatable"},
           Case{9,
                "group_size: 1\nloss: {advantage: reinforce_pp}\n"
                "replay: {max_age: 2, min_reward: 1}",
                "job.yaml:11: replay: needs a group_size of at least 2, got 1"},
       }) {
    Check(c);
  }
  EXPECT_THAT(
      ErrorLines(MinimalJobWith(6,
                                "reward: {components: {a: {type: python, function: f, group: "
                                "true}}}") +
                 "replay: {max_age: 2, min_reward: 1}\n"),
      ElementsAre("job.yaml:9: replay: contradicts reward.components.a, which compares the samples "
                  "of a group; remove one of the two"));
}

TEST(Validator, AdaptiveRollouts) {
  for (const Case& c : {
           Case{9, "adaptive_rollouts: {min_group_size: 2, min_reward: 1}", nullptr},
           Case{9, "adaptive_rollouts: {min_group_size: 8, min_reward: 1, max_tokens_factor: 1.5}",
                nullptr},
           Case{9, "adaptive_rollouts: {min_group_size: 2}",
                "job.yaml:9: adaptive_rollouts.min_reward: is required but missing"},
           Case{
               9, "adaptive_rollouts: {min_group_size: 9, min_reward: 1}",
               "job.yaml:9: adaptive_rollouts.min_group_size: must be at most group_size 8, got 9"},
           Case{9, "staleness: {max: 0}\nadaptive_rollouts: {min_group_size: 2, min_reward: 1}",
                "job.yaml:10: adaptive_rollouts: needs staleness.max above 0: with 0 runs are "
                "repeatable, but what is known of a row depends on time"},
           Case{9,
                "environment: {type: openai_agent, address: 'h:1'}\n"
                "adaptive_rollouts: {min_group_size: 2, min_reward: 1}",
                "job.yaml:10: adaptive_rollouts: contradicts environment.type openai_agent: agents "
                "and teams may need group_size episodes of every prompt; remove one of the two"},
       }) {
    Check(c);
  }
  EXPECT_THAT(ErrorLines(MinimalJobWith(
                  9,
                  "environment: {type: grpc, address: 'h:1'}\n"
                  "adaptive_rollouts: {min_group_size: 2, min_reward: 1, max_tokens_factor: 2}")),
              Contains(HasSubstr("job.yaml:10: adaptive_rollouts.max_tokens_factor: contradicts "
                                 "environment: the limit would also bound its observations")));
}

TEST(Validator, Names) {
  for (const Case& c : {
           Case{1, "name: ../up",
                "job.yaml:1: name: must be letters, digits, '.', '_' and '-', "
                "starting with a letter or a digit; got '../up'"},
           Case{9, "eval: {name: \"a b\"}",
                "job.yaml:9: eval.name: must be letters, digits, '_' and "
                "'-', starting with a letter or a digit; got 'a b'"},
           Case{6, "reward: {components: {\"a.b\": {type: exact_match}}}",
                "job.yaml:6: reward.components.a.b: the name of a component is at most 63 letters, "
                "digits, '_' and '-', starting with a letter or a digit"},
       }) {
    Check(c);
  }
}

TEST(Validator, ModelNeedsOneSource) {
  const std::string config =
      "config: {hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: "
      "16, "
      "max_position_embeddings: 16}";
  Check({2, "model: {}",
         "job.yaml:2: model: needs exactly one of init (random, with config) and path (a Hugging "
         "Face directory)"});
  Check({2, "model: {path: \"\"}",
         "job.yaml:2: model.path: is empty; give a Hugging Face directory, "
         "here or by --set model.path=DIR"});
  Check({2, "model: {path: x}", nullptr});
  Check({2, "model: {init: random}", "job.yaml:2: model.config: is required but missing"});
  Check({2, ("model: {path: x, " + config + "}").c_str(),
         "job.yaml:2: model.config: applies only with init random, not with no init; remove it"});
  Check({2, ("model: {init: random, path: x, " + config + "}").c_str(),
         "job.yaml:2: model.path: contradicts model.init random; keep one of the two"});
  Check({2, "model: {init: randm}", "job.yaml:2: model.init: must be random, got 'randm'"});
}

TEST(Validator, ModelShape) {
  const auto model = [](const std::string& shape) {
    return ErrorLines(MinimalJobWith(
        2,
        "model: {init: random, config: {num_hidden_layers: 1, intermediate_size: 16, "
        "max_position_embeddings: 16, " +
            shape + "}}"));
  };
  EXPECT_THAT(model("hidden_size: 10, num_attention_heads: 4"),
              ElementsAre("job.yaml:2: model.config.hidden_size: must be a multiple of "
                          "num_attention_heads 4, got 10; or give head_dim"));
  EXPECT_THAT(model("hidden_size: 10, num_attention_heads: 4, head_dim: 4"), IsEmpty());
  EXPECT_THAT(model("hidden_size: 12, num_attention_heads: 4"),
              ElementsAre("job.yaml:2: model.config.head_dim: must be even, got 3 (hidden_size / "
                          "num_attention_heads where it is not given)"));
  EXPECT_THAT(model("hidden_size: 8, num_attention_heads: 4, num_key_value_heads: 3"),
              ElementsAre("job.yaml:2: model.config.num_key_value_heads: must divide "
                          "num_attention_heads 4, got 3"));
}

TEST(Validator, ExactlyOneKeyGivesThePrompt) {
  const std::string jsonl = "dataset: {type: jsonl, path: f, ";
  Check({4, (jsonl + "answer: a}").c_str(), "job.yaml:4: dataset.prompt: is required but missing"});
  Check({4, (jsonl + "prompt: p, chat: {messages: m}, answer: a}").c_str(),
         "job.yaml:4: dataset.prompt: has no effect with dataset.chat.messages; remove one of "
         "them"});
  Check({4, (jsonl + "prompt: p, chat: {system: s}, answer: a}").c_str(),
         "job.yaml:4: dataset.chat: needs a chat template, which a character tokenizer does not "
         "have"});
}

TEST(Validator, Tokenizer) {
  for (const Case& c : {
           Case{3, "",
                "job.yaml: tokenizer: is required with model.init random, for example {type: "
                "char, alphabet: \"0123456789+=\"}"},
           Case{3, "tokenizer: {type: char}",
                "job.yaml:3: tokenizer.alphabet: is required but missing"},
           Case{3, "tokenizer: {type: char, alphabet: \"0123456789+=1\"}",
                "job.yaml:3: tokenizer.alphabet: holds '1' twice; give each character once"},
           Case{3, "tokenizer: {type: char, alphabet: \"0123456789=\"}",
                "job.yaml:3: tokenizer.alphabet: lacks '+', which dataset.type arithmetic needs"},
           Case{
               3, "tokenizer: {type: file, path: x, alphabet: ab}",
               "job.yaml:3: tokenizer.alphabet: applies only with type char, not with file; remove "
               "it"},
       }) {
    Check(c);
  }
}

TEST(Validator, Lengths) {
  for (
      const Case& c : {
          Case{5, "rollout: {max_new_tokens: 10}", nullptr},  // "12+34=" is 6, the context is 16
          Case{
              5, "rollout: {max_new_tokens: 11}",
              "job.yaml:5: rollout.max_new_tokens: a prompt of 6 tokens and 11 new ones do not fit "
              "into model.config.max_position_embeddings 16; the most is 10"},
          Case{5, "rollout: {max_new_tokens: 2}",
               "job.yaml:5: rollout.max_new_tokens: must be at least 3, the length of an answer, "
               "got 2"},
          Case{9, "eval: {max_new_tokens: 11}",
               "job.yaml:9: eval.max_new_tokens: a prompt of 6 tokens and 11 new ones do not fit "
               "into model.config.max_position_embeddings 16; the most is 10"},
          Case{7, "trainer: {steps: 1, max_tokens_per_microbatch: 4}",
               "job.yaml:7: trainer.max_tokens_per_microbatch: must be more than "
               "rollout.max_new_tokens 4, so that one sample fits, got 4"},
          Case{
              5, "rollout: {max_new_tokens: 4, max_sequences: 7}",
              "job.yaml:5: rollout.max_sequences: must be at least group_size 8, so that one group "
              "fits, got 7"},
      }) {
    Check(c);
  }
}

TEST(Validator, GeneratedRows) {
  for (const Case& c : {
           Case{4, "dataset: {type: arithmetic, train_rows: 10000}", nullptr},
           Case{4, "dataset: {type: arithmetic, train_rows: 10001}",
                "job.yaml:4: dataset.train_rows: must be at most 10000, the different rows of this "
                "dataset, got 10001"},
           Case{9, "eval: {rows: 2000}", nullptr},
           Case{9, "eval: {rows: 2001}",
                "job.yaml:9: eval.rows: must be at most 2000, what dataset.train_rows 8000 leaves "
                "of "
                "10000 different rows, got 2001"},
           Case{
               4, "dataset: {type: copy, symbols: \"0110\", train_rows: 1}",
               "job.yaml:4: dataset.symbols: must be different characters without '=', got '0110'"},
           Case{4, "dataset: {type: copy, symbols: \"0123456789\", train_rows: 9000, length: 4}",
                nullptr},
           Case{4, "dataset: {type: arithmetic, symbols: ab}",
                "job.yaml:4: dataset.symbols: applies only with type copy, not with arithmetic; "
                "remove it"},
       }) {
    Check(c);
  }
}

TEST(Validator, GeneratedRowsHaveNoOtherFields) {
  EXPECT_THAT(
      ErrorLines(MinimalJob(),
                 {"reward.components={r: {type: judge, model: m, text: \"{prompt} {answer} "
                  "{response} {others} {nofield}\"}}"}),
      ElementsAre(HasSubstr("reward.components.r.text: asks for the field 'nofield', but rows of "
                            "dataset.type arithmetic have only {prompt} and {answer}")));
}

TEST(Validator, TemplateRowsHaveTheFieldsThatAreAskedFor) {
  const std::string job = MinimalJobWith(4,
                                         "dataset:\n  type: template\n  prompt: \"{a}{{b}}{ c}\"\n "
                                         " rows:\n    - {a: x, d: y}\n    - {b: x}");
  EXPECT_THAT(ErrorLines(job, {"reward.components={r: {type: contains, text: \"{d}\"}}"}),
              ElementsAre("job.yaml:9: dataset.rows.1: has no field 'a', which dataset.prompt asks "
                          "for",
                          "job.yaml:9: dataset.rows.1: has no field 'd', which "
                          "reward.components.r.text asks for"));
}

TEST(Validator, GoldAnswersMustExistWhereTheyAreUsed) {
  const std::string job = MinimalJobWith(4, "dataset: {type: jsonl, path: f, prompt: \"{q}\"}");
  EXPECT_THAT(ErrorLines(job + "warmup: {sft: {steps: 1, learning_rate: 1}}\n"),
              ElementsAre("job.yaml:6: reward.components.exact.text: asks for the gold answer, but "
                          "rows have none; name their field in dataset.answer",
                          "job.yaml:9: warmup.sft: trains on gold answers; name their field in "
                          "dataset.answer"));
  EXPECT_THAT(ErrorLines(job, {"dataset.answer=a"}), IsEmpty());
}

TEST(Validator, RewardComponents) {
  for (
      const Case& c : {
          Case{6, "reward: {components: {}}",
               "job.yaml:6: reward.components: is required but missing"},
          Case{6, "reward: {components: {a: {type: contains}}}",
               "job.yaml:6: reward.components.a.text: is required but missing"},
          Case{
              6, "reward: {components: {a: {type: regex, text: x, pattern: y}}}",
              "job.yaml:6: reward.components.a.text: applies only with type exact_match or numeric "
              "or contains or length or code or judge or reward_model, not with regex; remove it"},
          Case{6, "reward: {components: {a: {type: exactmatch}}}",
               "job.yaml:6: reward.components.a.type: must be one of exact_match, numeric, "
               "contains, regex, length, math, code, judge, reward_model, python, grpc, "
               "environment, got "
               "'exactmatch'; did you mean exact_match?"},
          Case{6, "reward: {components: {a: {type: length, min_tokens: 5, max_tokens: 4}}}",
               "job.yaml:6: reward.components.a.min_tokens: must be at most max_tokens 4, got 5"},
          Case{
              6,
              "reward: {components: {a: {type: length, shape: soft_overlong, min_tokens: 5, "
              "max_tokens: 9}}}",
              "job.yaml:6: reward.components.a.min_tokens: has no effect with shape soft_overlong; "
              "remove it"},
          Case{6, "reward: {components: {a: {type: length}}}",
               "job.yaml:6: reward.components.a.max_tokens: is required but missing"},
          Case{6, "reward: {components: {a: {type: length, max_tokens: 9, text: \"9\"}}}",
               "job.yaml:6: reward.components.a.text: has no effect with shape window; remove it"},
          Case{6, "reward: {components: {a: {type: length, shape: budget}}}",
               "job.yaml:6: reward.components.a.text: is required but missing"},
          Case{6,
               "reward: {components: {a: {type: length, shape: budget, text: \"9\", max_tokens: "
               "9}}}",
               "job.yaml:6: reward.components.a.max_tokens: has no effect with shape budget; "
               "remove it"},
          Case{6, "reward: {components: {a: {type: exact_match, only_if: b}}}",
               "job.yaml:6: reward.components.a.only_if: must name another component, got 'b'"},
      }) {
    Check(c);
  }
}

TEST(Validator, GroupsOfOneNeedABatchAdvantage) {
  const auto errors = [](const std::string& loss) {
    return ErrorLines(MinimalJob() + "group_size: 1\nloss: {" + loss + "}\n");
  };
  for (const char* name : {"grpo", "dr_grpo", "rloo", "dapo"}) {
    EXPECT_THAT(errors(StrCat("preset: ", name)),
                ElementsAre(StrCat("job.yaml:9: group_size: must be at least 2: loss.preset ", name,
                                   " compares the samples of a group (reinforce_pp does not)")));
  }
  EXPECT_THAT(
      errors(""),
      ElementsAre("job.yaml:9: group_size: must be at least 2: loss.preset grpo compares the "
                  "samples of a group (reinforce_pp does not)"));
  EXPECT_THAT(
      errors("preset: reinforce_pp, advantage: rloo"),
      ElementsAre("job.yaml:9: group_size: must be at least 2: loss.advantage rloo compares "
                  "the samples of a group (reinforce_pp does not)"));
  EXPECT_THAT(errors("preset: reinforce_pp"), IsEmpty());
  EXPECT_THAT(errors("advantage: reinforce_pp"), IsEmpty());
}

TEST(Validator, StoreCapacity) {
  // (1 + 1 + 2 * 20) * 64 = 2688
  Check({9, "datastore: {capacity_groups: 2688}", nullptr});
  Check({9, "datastore: {capacity_groups: 2687}",
         "job.yaml:9: datastore.capacity_groups: must be at least (staleness.max 1 + 1 + 2 * "
         "checkpoint.every_steps 20) * prompts_per_step 64 = 2688, or 0, got 2687; or checkpoint "
         "more "
         "often"});
  EXPECT_EQ(CapacityGroups(ParseJob(MinimalJob(), "j").spec), 2688);
}

TEST(Validator, WithoutCheckpointsOnTheWayTheStoreHoldsTheWholeJob) {
  // (1 + 1 + 10) * 64 = 768
  const std::string job = MinimalJob() + "checkpoint: {every_steps: 0}\n";
  EXPECT_THAT(ErrorLines(job, {"datastore.capacity_groups=768"}), IsEmpty());
  EXPECT_THAT(ErrorLines(job, {"datastore.capacity_groups=767"}),
              ElementsAre("--set: datastore.capacity_groups: must be at least (staleness.max 1 + 1 "
                          "+ trainer.steps 10) * prompts_per_step 64 = 768, or 0, got 767; without "
                          "checkpoints on the way the store keeps every group"));
  EXPECT_EQ(CapacityGroups(ParseJob(job, "j").spec), 768);
}

TEST(Validator, Steps) {
  for (const Case& c : {
           Case{7, "trainer: {steps: 1, minibatches_per_step: 4}", nullptr},
           Case{7, "trainer: {steps: 1, minibatches_per_step: 7}",
                "job.yaml:7: trainer.minibatches_per_step: must divide prompts_per_step 64, got 7"},
           Case{9, "weight_sync: {every_steps: 2}", nullptr},
           Case{
               9, "weight_sync: {every_steps: 3}",
               "job.yaml:9: weight_sync.every_steps: must be at most staleness.max + 1 = 2, got 3; "
               "training would wait for samples that engines may only make with newer weights"},
           Case{9, "weight_sync: {transport: auto, delta: zstd}", nullptr},
           Case{9, "weight_sync: {transport: shm, delta: none}", nullptr},
           Case{9, "weight_sync: {transport: shm, delta: zstd}",
                "job.yaml:9: weight_sync.delta: zstd has no effect with transport shm, which sends "
                "no weights to other sites; use auto, cuda_ipc, grpc_relay or nccl, or remove it"},
           Case{8, "optimizer: {learning_rate: 0.1, min_learning_rate: 0.2}",
                "job.yaml:8: optimizer.min_learning_rate: must be at most learning_rate 0.1, got "
                "0.2"},
           Case{8, "optimizer: {learning_rate: 0.1, warmup_steps: 11}",
                "job.yaml:8: optimizer.warmup_steps: must be at most trainer.steps 10, got 11"},
       }) {
    Check(c);
  }
}

TEST(Validator, WorksOnASpecWithoutAFile) {
  JobSpec spec = ParseJob(MinimalJob(), "job.yaml").spec;
  spec.mutable_staleness()->set_max(-2);
  const std::vector<ConfigError> errors = ValidateJob(spec);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(FormatConfigError(errors[0]), "job: staleness.max: must be from 0 to 1024, got -2");
}

TEST(Validator, EmptySpecGivesFaultsOnly) { EXPECT_FALSE(ValidateJob(JobSpec()).empty()); }

}  // namespace
}  // namespace freshet
