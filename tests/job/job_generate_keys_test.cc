#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/job_validator.h"
#include "job/loss_setup.h"
#include "tests/job/job_text.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// MinimalJob() as a job of kind generate, with these further lines.
std::string Generate(const std::string& more = "") {
  return MinimalJobWith(8, StrCat("kind: generate\n", more));
}

TEST(GenerateKeys, SuchAJobNeedsNothingOfTraining) {
  const JobResult job = ParseJob(Generate(), "job.yaml");
  EXPECT_THAT(job.errors, IsEmpty());
  EXPECT_FALSE(job.spec.has_optimizer());
  EXPECT_FALSE(job.spec.has_loss());
  EXPECT_EQ(ParseJob(MinimalJob(), "job.yaml").spec.kind(), "train");
  EXPECT_THAT(ErrorLines(MinimalJobWith(8, "kind: train\n")),
              ElementsAre(HasSubstr("optimizer.learning_rate: is required")));
  EXPECT_THAT(ErrorLines(MinimalJobWith(8, "kind: generat\n")),
              ElementsAre(HasSubstr("kind: must be one of train, generate")));
}

TEST(GenerateKeys, EnginesMayBeFarAheadUnlessTheJobSaysOtherwise) {
  const JobSpec job = ParseJob(Generate(), "job.yaml").spec;
  EXPECT_EQ(job.staleness().max(), 8);
  EXPECT_EQ(job.weight_sync().every_steps(), 4);
  EXPECT_EQ(job.rollout().max_inflight_groups(), 9 * 64);
  const JobSpec bounded = ParseJob(Generate("staleness: {max: 1}\n"), "job.yaml").spec;
  EXPECT_EQ(bounded.staleness().max(), 1);
  EXPECT_EQ(bounded.weight_sync().every_steps(), 1);
  EXPECT_EQ(ParseJob(MinimalJob(), "job.yaml").spec.staleness().max(), 1);
}

TEST(GenerateKeys, BlocksOfTrainingAreRefused) {
  for (const char* block : {"optimizer: {learning_rate: 0.1}", "loss: {preset: grpo}",
                            "eval: {rows: 4}", "warmup: {sft: {steps: 1, learning_rate: 0.1}}"}) {
    const std::string name(block, std::string_view(block).find(':'));
    EXPECT_THAT(ErrorLines(Generate(StrCat(block, "\n"))),
                ElementsAre(AllOf(
                    HasSubstr(StrCat("job.yaml:9: ", name)),
                    HasSubstr("applies only with kind train, not with generate; remove it"))));
  }
}

TEST(GenerateKeys, KeysOfTrainingAreRefusedOneByOne) {
  for (const char* key :
       {"trainer.minibatches_per_step=2", "trainer.threads=2",
        "trainer.activation_checkpointing=true", "trainer.ranks=2", "trainer.device=cuda",
        "trainer.sharding=full", "trainer.rank_wait_ms=5", "checkpoint.dtype=bf16",
        "checkpoint.keep_every=4", "checkpoint.keep_best=1", "staleness.policy=mask"}) {
    const std::string name(key, std::string_view(key).find('='));
    EXPECT_THAT(ErrorLines(Generate(), {key}),
                ElementsAre(AllOf(HasSubstr(name), HasSubstr("has no meaning with kind generate"))))
        << key;
  }
}

TEST(GenerateKeys, CurationForTrainingIsRefused) {
  EXPECT_THAT(ErrorLines(Generate("adaptive_rollouts: {min_group_size: 2, min_reward: 1}\n")),
              Contains(HasSubstr("adaptive_rollouts: has no meaning with kind generate")));
}

TEST(GenerateKeys, TokenIdsAreForGeneratedFiles) {
  EXPECT_THAT(ErrorLines(Generate("output: {token_ids: true}\n")), IsEmpty());
  EXPECT_THAT(ErrorLines(MinimalJob() + "output: {token_ids: true}\n"),
              ElementsAre(HasSubstr("output.token_ids: applies only with kind generate")));
}

TEST(GenerateKeys, WhatOnlyALossNeedsIsNotAskedFor) {
  EXPECT_THAT(ErrorLines(Generate("group_size: 1\n")), IsEmpty());
  const JobResult one = ParseJob(Generate("group_size: 1\n"), "job.yaml");
  LossSpec loss;
  EXPECT_THAT(CheckLoss(one.spec, one.places, loss), IsEmpty());
  EXPECT_FALSE(loss.NeedsReference());
  // A sample need not fit in a microbatch.
  EXPECT_THAT(ErrorLines(Generate(), {"trainer.max_tokens_per_microbatch=2"}), IsEmpty());
}

}  // namespace
}  // namespace freshet
