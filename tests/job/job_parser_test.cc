#include "job/job_parser.h"

#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "tests/job/job_text.h"

namespace freshet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ParseJob, FillsInDefaults) {
  const JobResult result = ParseJob(MinimalJob(), "job.yaml");
  ASSERT_EQ(FormatConfigErrors(result.errors), "");
  const JobSpec& spec = result.spec;
  EXPECT_EQ(spec.seed(), 1);
  EXPECT_EQ(spec.group_size(), 8);
  EXPECT_EQ(spec.model().dtype(), "fp32");
  EXPECT_EQ(spec.model().config().model_type(), "llama");
  EXPECT_EQ(spec.model().config().rms_norm_eps(), 1e-5);
  EXPECT_FALSE(spec.model().config().tie_word_embeddings());
  EXPECT_EQ(spec.reward().timeout_ms(), 1000);
  EXPECT_EQ(spec.reward().components().at("exact").weight(), 1.0);
  EXPECT_EQ(spec.staleness().policy(), "wait");
  EXPECT_EQ(spec.optimizer().beta2(), 0.999);
  EXPECT_EQ(spec.weight_sync().transport(), "auto");
}

TEST(ParseJob, DerivesDefaultsFromOtherKeys) {
  const JobResult result = ParseJob(MinimalJob() + "staleness: {max: 3}\neval: {rows: 5}\n", "j");
  ASSERT_EQ(FormatConfigErrors(result.errors), "");
  EXPECT_EQ(result.spec.rollout().max_inflight_groups(), 256);  // (3 + 1) * 64
  EXPECT_EQ(result.spec.eval().max_new_tokens(), 4);
  EXPECT_EQ(result.spec.model().config().head_dim(), 4);  // 8 / 2
  EXPECT_EQ(result.spec.model().config().num_key_value_heads(), 2);
  EXPECT_EQ(result.spec.reward().components().at("exact").text(), "{answer}");
}

TEST(ParseJob, LeavesLossAndBlocksWhoseAbsenceCountsAlone) {
  const JobResult result = ParseJob(MinimalJob() + "loss: {clip: {high: 0.3}}\n", "job.yaml");
  ASSERT_EQ(FormatConfigErrors(result.errors), "");
  EXPECT_FALSE(result.spec.loss().has_preset());
  EXPECT_FALSE(result.spec.loss().clip().has_low());
  EXPECT_TRUE(result.spec.loss().clip().has_high());
  EXPECT_FALSE(result.spec.loss().has_correction());
  EXPECT_FALSE(result.spec.has_eval());
  EXPECT_FALSE(result.spec.warmup().has_sft());
}

TEST(ParseJob, DoesNotFillKeysThatDoNotApply) {
  const JobResult result = ParseJob(MinimalJob(), "job.yaml");
  EXPECT_FALSE(result.spec.dataset().has_symbols());
  EXPECT_FALSE(result.spec.reward().components().at("exact").has_min_count());
}

TEST(ParseJob, ResolvingAgainChangesNothing) {
  const JobResult result = ParseJob(MinimalJob() + "eval: {rows: 5}\n", "job.yaml");
  JobSpec again = result.spec;
  ResolveJob(again);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(result.spec, again));
}

TEST(ParseJob, NameOfAnUnknownKeyIsSuggested) {
  struct Case {
    int line;
    const char* text;
    const char* error;
  };
  for (const Case& c : {
           Case{5, "rollout: {max_new_tokens: 4, temprature: 1}",
                "job.yaml:5: rollout.temprature: unknown key; did you mean temperature?"},
           Case{1, "name: tiny\nsede: 1", "job.yaml:2: sede: unknown key; did you mean seed?"},
           Case{1, "name: tiny\nkeep_last: 1",
                "job.yaml:2: keep_last: unknown key; did you mean checkpoint.keep_last?"},
           Case{1, "name: tiny\nmax_new_tokens: 1",
                "job.yaml:2: max_new_tokens: unknown key; did you mean rollout.max_new_tokens or "
                "eval.max_new_tokens or eval.sets.N.max_new_tokens?"},
           Case{7, "trainer: {steps: 1, banana: 2}",
                "job.yaml:7: trainer.banana: unknown key; the keys here are steps, "
                "minibatches_per_step, max_tokens_per_microbatch, threads, "
                "activation_checkpointing, ranks, device, sharding, rank_wait_ms"},
           Case{6, "reward: {components: {exact: {type: exact_match, wieght: 1}}}",
                "job.yaml:6: reward.components.exact.wieght: unknown key; did you mean weight?"},
       }) {
    EXPECT_THAT(ErrorLines(MinimalJobWith(c.line, c.text)), ElementsAre(c.error));
  }
}

TEST(ParseJob, WrongTypesAreFaults) {
  struct Case {
    const char* trainer;
    const char* error;
  };
  for (const Case& c : {
           Case{"trainer: {steps: ten}",
                "job.yaml:7: trainer.steps: expected an integer, got 'ten'"},
           Case{"trainer: {steps: 1.5}",
                "job.yaml:7: trainer.steps: expected an integer, got '1.5'"},
           Case{"trainer: {steps: 1e3}",
                "job.yaml:7: trainer.steps: expected an integer, got '1e3'"},
           Case{"trainer: {steps: 99999999999999999999}",
                "job.yaml:7: trainer.steps: expected an integer, got '99999999999999999999'"},
           Case{"trainer: {steps: \"5\"}",
                "job.yaml:7: trainer.steps: expected an integer, got the text '5'; remove the "
                "quotes"},
           Case{"trainer: {steps: [1]}",
                "job.yaml:7: trainer.steps: expected an integer, got a list"},
           Case{"trainer: {steps: {a: 1}}",
                "job.yaml:7: trainer.steps: expected an integer, got a block of keys"},
           Case{"trainer: {steps: }",
                "job.yaml:7: trainer.steps: has no value; give one or remove the key"},
           Case{"trainer: [1]",
                "job.yaml:7: trainer: expected a block with the keys steps, minibatches_per_step, "
                "max_tokens_per_microbatch, threads, activation_checkpointing, ranks, device, "
                "sharding, rank_wait_ms, got "
                "a list"},
       }) {
    EXPECT_THAT(ErrorLines(MinimalJobWith(7, c.trainer)), ElementsAre(c.error)) << c.trainer;
  }
}

TEST(ParseJob, NumbersAndTruthValuesAreStrict) {
  const auto optimizer = [](const std::string& value) {
    return ErrorLines(MinimalJobWith(8, "optimizer: {learning_rate: " + value + "}"));
  };
  for (const char* value : {"1", "1e-3", "+0.5", "1.0E-3", ".5"}) {
    EXPECT_THAT(optimizer(value), IsEmpty()) << value;
  }
  for (const char* value : {".inf", "nan", "0x1", "1_0", "1e999", "--1", "+-1", "1,5", "1 2"}) {
    EXPECT_FALSE(optimizer(value).empty()) << value;
  }
  EXPECT_THAT(ErrorLines(MinimalJob() + "filter: {zero_variance: yes}\n"),
              ElementsAre("job.yaml:9: filter.zero_variance: expected true or false, got 'yes'"));
}

TEST(ParseJob, ListsAndMapsAreChecked) {
  EXPECT_THAT(ErrorLines(MinimalJobWith(5, "rollout: {max_new_tokens: 4, stop_token_ids: 3}")),
              ElementsAre("job.yaml:5: rollout.stop_token_ids: expected a list, got '3'"));
  EXPECT_THAT(
      ErrorLines(MinimalJobWith(5, "rollout:\n  max_new_tokens: 4\n  stop_token_ids: [3,\n    x]")),
      ElementsAre("job.yaml:8: rollout.stop_token_ids.1: expected an integer, got 'x'"));
  EXPECT_THAT(ErrorLines(MinimalJobWith(6, "reward: {components: [exact_match]}")),
              ElementsAre("job.yaml:6: reward.components: expected a map of names, got a list"));
}

TEST(ParseJob, TwoCorrectionsAreRefusedByName) {
  EXPECT_THAT(ErrorLines(MinimalJob() + "loss: {correction: [{kind: tis}, {kind: mask}]}\n"),
              ElementsAre("job.yaml:9: loss.correction: two importance corrections contradict each "
                          "other; keep one, as {kind, cap}"));
}

TEST(ParseJob, DuplicateKeysAreFaults) {
  EXPECT_THAT(ErrorLines(MinimalJob() + "name: b\n"),
              ElementsAre("job.yaml:9: name: is given twice, first in line 1; remove one"));
  EXPECT_THAT(
      ErrorLines(MinimalJob() + "loss:\n  correction: {kind: tis}\n  correction: {kind: mask}\n"),
      ElementsAre("job.yaml:11: loss.correction: is given twice, first in line 10; remove one"));
  EXPECT_THAT(
      ErrorLines(
          MinimalJobWith(6, "reward: {components: {a: {type: exact_match}, a: {type: numeric}}}")),
      ElementsAre("job.yaml:6: reward.components.a: is given twice, first in line 6; remove one"));
}

TEST(ParseJob, BlockWithoutAValueIsAbsent) {
  EXPECT_THAT(ErrorLines(MinimalJob() + "eval:\nloss:\ncheckpoint: ~\n"), IsEmpty());
}

TEST(ParseJob, AWrongKeySpoilsNoDerivedDefault) {
  EXPECT_THAT(ErrorLines(MinimalJob() + "staleness: {max: 9223372036854775807}\neval: {rows: 9}\n"),
              ElementsAre("job.yaml:9: staleness.max: must be from 0 to 1024, got "
                          "9223372036854775807"));
  EXPECT_THAT(ErrorLines(MinimalJobWith(5, "rollout: {max_new_tokens: 0}") + "eval: {rows: 9}\n"),
              ElementsAre("job.yaml:5: rollout.max_new_tokens: must be from 1 to 1048576, got 0"));
}

TEST(ParseJob, DerivedDefaultsStayInRange) {
  EXPECT_THAT(ErrorLines(MinimalJob() + "staleness: {max: 1024}\nprompts_per_step: 65536\n"),
              IsEmpty());
}

TEST(ParseJob, TellsEverythingAtOnceInTheOrderOfTheFile) {
  EXPECT_THAT(
      ErrorLines("seed: -1\nrollout:\n  max_new_tokns: 4\nmodel: {init: random, path: x}\n"
                 "staleness: {policy: never}\n",
                 {"trainer.steps=x"}),
      ElementsAre(
          "job.yaml:1: seed: must be at least 0, got -1",
          "job.yaml:2: rollout.max_new_tokens: is required but missing",
          "job.yaml:3: rollout.max_new_tokns: unknown key; did you mean max_new_tokens?",
          "job.yaml:4: model.config: is required but missing",
          "job.yaml:4: model.path: contradicts model.init random; keep one of the two",
          "job.yaml:5: staleness.policy: must be one of wait, drop, requeue, mask, got 'never'",
          "--set: trainer.steps: expected an integer, got 'x'",
          "job.yaml: name: is required but missing",
          "job.yaml: reward.components: is required but missing",
          "job.yaml: optimizer.learning_rate: is required but missing",
          "job.yaml: tokenizer: is required with model.init random, for example {type: char, "
          "alphabet: \"0123456789+=\"}",
          "job.yaml: dataset: is required but missing; give it, or tasks"));
}

}  // namespace
}  // namespace freshet
