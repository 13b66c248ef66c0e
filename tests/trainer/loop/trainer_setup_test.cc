#include "trainer/loop/trainer_setup.h"

#include <limits>
#include <set>
#include <utility>
#include <variant>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/loss_setup.h"

namespace freshet {
namespace {

job::v1::JobSpec Job() {
  job::v1::JobSpec spec;
  spec.set_seed(3);
  spec.set_group_size(4);
  spec.set_prompts_per_step(8);
  spec.mutable_trainer()->set_steps(50);
  spec.mutable_trainer()->set_minibatches_per_step(2);
  spec.mutable_trainer()->set_max_tokens_per_microbatch(4096);
  spec.mutable_optimizer()->set_learning_rate(0.1);
  spec.mutable_optimizer()->set_schedule("cosine");
  spec.mutable_optimizer()->set_warmup_steps(5);
  spec.mutable_optimizer()->set_min_learning_rate(0.02);
  spec.mutable_optimizer()->set_beta2(0.98);
  spec.mutable_rollout()->set_temperature(0.7);
  spec.mutable_rollout()->set_max_new_tokens(32);
  spec.mutable_weight_sync()->set_every_steps(2);
  spec.mutable_checkpoint()->set_every_steps(10);
  spec.mutable_checkpoint()->set_keep_last(3);
  return spec;
}

TEST(TrainerSetup, TheScheduleEndsAtTheSmallestRate) {
  const LearningRateSchedule schedule = MakeSchedule(Job());
  EXPECT_EQ(schedule.kind, ScheduleKind::kCosine);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 5), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(schedule, 50), 0.02);
}

TEST(TrainerSetup, TheLearnerIsMadeForTheJob) {
  ModelConfig model;
  model.vocab_size = 12;
  const PolicyLearnerOptions options = MakeLearnerOptions(Job(), model, LossSpec{});
  EXPECT_EQ(options.model.vocab_size, 12);
  EXPECT_EQ(options.minibatches_per_step, 2);
  EXPECT_EQ(options.max_tokens_per_microbatch, 4096);
  EXPECT_DOUBLE_EQ(options.temperature, 0.7);
  EXPECT_EQ(options.max_new_tokens, 32);
  EXPECT_DOUBLE_EQ(options.beta2, 0.98);
  EXPECT_FALSE(options.bf16);
  EXPECT_FALSE(options.activation_checkpointing);
  EXPECT_FALSE(options.whole_responses);
  EXPECT_EQ(MakeLearnerOptions(Job(), model, LossSpec{}, /*processors=*/6).threads, 6);
  job::v1::JobSpec job = Job();
  job.mutable_trainer()->set_threads(3);
  job.mutable_trainer()->set_activation_checkpointing(true);
  const PolicyLearnerOptions others = MakeLearnerOptions(job, model, LossSpec{}, /*processors=*/6);
  EXPECT_EQ(others.threads, 3);
  EXPECT_TRUE(others.activation_checkpointing);
}

TEST(TrainerSetup, ConversationsHaveAPromptOfTheirOwn) {
  job::v1::JobSpec job = Job();
  job.mutable_environment()->set_type("grpc");
  EXPECT_FALSE(MakeLearnerOptions(job, {}, LossSpec{}).whole_responses);
  job.mutable_environment()->set_observations("messages");
  EXPECT_TRUE(MakeLearnerOptions(job, {}, LossSpec{}).whole_responses);
}

TEST(TrainerSetup, AScoreIsOfTheNewestCheckpointUpToTheEvaluatedVersion) {
  job::v1::JobSpec job = Job();
  job.mutable_trainer()->set_steps(45);
  job.mutable_eval()->set_name("heldout");
  job.mutable_eval()->set_every_steps(5);
  EvalMetrics metrics;
  metrics.eval_name = "heldout";
  metrics.eval_accuracy = 0.5;
  metrics.lineage = 2;
  for (const auto& [version, checkpoint] :
       {std::pair{0, 0}, {10, 10}, {13, 10}, {44, 40}, {45, 45}}) {
    metrics.policy_version = version;
    const auto score = ScoreOf(metrics, job);
    ASSERT_TRUE(score.has_value());
    EXPECT_EQ(score->checkpoint, checkpoint);
    EXPECT_EQ(score->policy, (PolicyVersion{2, version}));
    EXPECT_EQ(score->accuracy, 0.5);
  }
  metrics.eval_accuracy = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(ScoreOf(metrics, job).has_value());
  metrics.eval_accuracy = 0.5;
  metrics.eval_name = "other";
  EXPECT_FALSE(ScoreOf(metrics, job).has_value());
}

TEST(TrainerSetup, TheLoopKeepsTheReferenceCheckpoint) {
  TrainerLoopOptions options = MakeLoopOptions(Job(), "job-7", /*has_reference=*/false);
  EXPECT_EQ(options.job, "job-7");
  EXPECT_EQ(options.steps, 50);
  EXPECT_EQ(options.publish_every, 2);
  EXPECT_EQ(options.checkpoint_every, 10);
  EXPECT_EQ(options.retention.last, 3);
  EXPECT_EQ(options.seed, 3U);
  EXPECT_THAT(options.retention.pinned, testing::IsEmpty());
  EXPECT_EQ(MakeLoopOptions(Job(), "job-7", /*has_reference=*/true).retention.pinned,
            std::set<int64_t>{0});
}

TEST(TrainerSetup, CheckpointsAreFp32ByDefault) {
  job::v1::JobSpec spec = Job();
  for (const auto& [name, dtype] :
       {std::pair{"", Dtype::kF32}, {"fp32", Dtype::kF32}, {"bf16", Dtype::kBf16}}) {
    if (*name != '\0') spec.mutable_checkpoint()->set_dtype(name);
    EXPECT_EQ(CheckpointDtype(spec), dtype) << name;
    EXPECT_EQ(MakeLoopOptions(spec, "job-7", /*has_reference=*/false).checkpoint_dtype, dtype);
  }
}

TEST(LossSetup, EveryKeyReachesTheLoss) {
  job::v1::JobSpec spec = Job();
  job::v1::Loss& loss = *spec.mutable_loss();
  loss.set_preset("dapo");
  loss.set_advantage("rloo");
  loss.mutable_clip()->set_low(0.1);
  loss.mutable_clip()->set_high(0.3);
  loss.mutable_clip()->set_dual(3);
  loss.mutable_correction()->set_kind("mask");
  loss.mutable_correction()->set_cap(4);
  loss.mutable_correction()->set_low(0.25);
  loss.mutable_kl()->set_kind("k2");
  loss.mutable_kl()->set_coef(0.01);
  loss.set_aggregate("sequence_mean");
  loss.set_entropy_coef(0.001);
  const auto resolved = ResolveJobLoss(spec);
  ASSERT_TRUE(std::holds_alternative<LossSpec>(resolved));
  EXPECT_EQ(DescribeLoss(std::get<LossSpec>(resolved)),
            "{advantage: rloo, ratio: token, anchor: proximal, clip: {low: 0.1, high: 0.3, "
            "dual: 3.0}, correction: {kind: mask, cap: 4.0, low: 0.25}, kl: {kind: k2, coef: "
            "0.01}, aggregate: sequence_mean, entropy_coef: 0.001}");
}

TEST(LossSetup, TheStalenessBoundDecidesOnTheCorrection) {
  job::v1::JobSpec spec = Job();
  const auto kind = [&] { return std::get<LossSpec>(ResolveJobLoss(spec)).correction.kind; };
  EXPECT_EQ(kind(), CorrectionKind::kNone);
  spec.mutable_staleness()->set_max(1);
  EXPECT_EQ(kind(), CorrectionKind::kTis);
  spec.mutable_loss()->mutable_correction()->set_kind("none");
  EXPECT_EQ(kind(), CorrectionKind::kNone);
}

TEST(LossSetup, TheSizeOfAGroupDecidesToo) {
  job::v1::JobSpec spec = Job();
  spec.set_group_size(1);
  const auto resolved = ResolveJobLoss(spec);
  ASSERT_TRUE(std::holds_alternative<std::vector<LossError>>(resolved));
  EXPECT_EQ(std::get<std::vector<LossError>>(resolved)[0].field, "loss.advantage");
}

}  // namespace
}  // namespace freshet
