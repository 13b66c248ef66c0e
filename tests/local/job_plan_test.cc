#include "local/job_plan.h"

#include <algorithm>

#include "base/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "job/job_parser.h"
#include "tests/e2e/tiny_job.h"

namespace freshet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const ContainerLimits kLimits = {2.0, int64_t{8} << 30};

JobPlan Plan(const TinyJob& job, const Hardware* hardware = nullptr) {
  const JobResult parsed = ParseJob(ToYaml(job), "job.yaml", {});
  EXPECT_TRUE(parsed.errors.empty()) << FormatConfigErrors(parsed.errors);
  const auto setup = PrepareJob(parsed.spec, parsed.places);
  EXPECT_TRUE(setup.ok()) << setup.status();
  return PlanJob(**setup, kLimits, hardware);
}

// 0 if the plan does not have the item.
int64_t Bytes(const ProcessPlan& plan, const std::string& item) {
  const auto found = std::ranges::find(plan.memory, item, &MemoryItem::name);
  return found == plan.memory.end() ? 0 : found->bytes;
}

TinyJob Bf16Job() {
  TinyJob job = MakeTinyJob();
  job["model"] =
      "{init: random, dtype: bf16, config: {model_type: llama, hidden_size: 64, "
      "num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 256, "
      "max_position_embeddings: 8, tie_word_embeddings: true}}";
  job["trainer"] = "{steps: 2, threads: 2}";
  job.erase("eval");
  return job;
}

TEST(JobPlan, StateOfTheTrainerFollowsFromTheParameters) {
  const JobPlan plan = Plan(Bf16Job());
  const int64_t optimizer = Bytes(plan.trainer, "optimizer state");  // 8 bytes per parameter
  EXPECT_GT(optimizer, 8 * 4 * (4 * 64 * 64 + 3 * 64 * 256));
  EXPECT_EQ(Bytes(plan.trainer, "weights"), optimizer / 8 * 6) << "fp32 and bf16";
  EXPECT_EQ(Bytes(plan.trainer, "gradients"), optimizer / 2);
  EXPECT_EQ(Bytes(plan.trainer, "published versions"), optimizer / 8 * 4);
  EXPECT_EQ(Bytes(plan.rollout, "received versions"), optimizer / 8 * 4);
}

TEST(JobPlan, EveryThreadThatHasAMicrobatchHasGradients) {
  TinyJob job = Bf16Job();
  job["prompts_per_step"] = "100";
  const JobPlan plan = Plan(job);
  EXPECT_EQ(
      Bytes(plan.trainer, "gradients") + Bytes(plan.trainer, "gradients of other microbatches"),
      Bytes(plan.trainer, "optimizer state"));
}

TEST(JobPlan, AJobThatGeneratesHoldsWeightsOnly) {
  TinyJob job = Bf16Job();
  const int64_t published = Bytes(Plan(job).trainer, "published versions");
  job["kind"] = "generate";
  job["trainer"] = "{steps: 2}";
  for (const char* block : {"loss", "warmup", "optimizer"}) job.erase(block);
  const JobPlan plan = Plan(job);
  EXPECT_EQ(Bytes(plan.trainer, "weights"), published / 2);
  EXPECT_EQ(Bytes(plan.trainer, "published versions"), published);
  EXPECT_EQ(plan.trainer.memory.size(), 3U) << "and the program";
  EXPECT_EQ(plan.trainer.checkpoint_copy_bytes, 0);
}

TEST(JobPlan, AReferencePolicyIsOneMoreCopyOfTheWeights) {
  TinyJob job = Bf16Job();
  EXPECT_EQ(Bytes(Plan(job).trainer, "reference weights"), 0);
  job["loss"] = "{preset: grpo, kl: {kind: k3, coef: 0.01}}";
  const JobPlan plan = Plan(job);
  EXPECT_EQ(Bytes(plan.trainer, "reference weights"), Bytes(plan.trainer, "optimizer state") / 4);
}

TEST(JobPlan, RanksDivideWhatTheJobSays) {
  TinyJob job = Bf16Job();
  job["model"] =
      "{init: random, dtype: bf16, config: {model_type: llama, hidden_size: 64, "
      "num_hidden_layers: 16, num_attention_heads: 4, intermediate_size: 256, "
      "max_position_embeddings: 8, tie_word_embeddings: true}}";
  const auto plan = [&](const char* sharding) {
    job["trainer"] = StrCat("{steps: 2, threads: 1, ranks: 4, sharding: ", sharding, "}");
    return Plan(job);
  };
  const JobPlan none = plan("none");
  const int64_t numbers = Bytes(none.trainer, "optimizer state") / 8;
  const JobPlan optimizer = plan("optimizer");
  EXPECT_EQ(Bytes(optimizer.trainer, "weights"), numbers * 2);
  EXPECT_EQ(Bytes(optimizer.trainer, "gradients"), numbers * 4);
  EXPECT_NEAR(static_cast<double>(Bytes(optimizer.trainer, "part of the state")),
              static_cast<double>(numbers) * 14 / 4, 100);
  const JobPlan full = plan("full");
  EXPECT_EQ(Bytes(full.trainer, "weights"), 0);
  EXPECT_GT(Bytes(full.trainer, "blocks of a checkpoint"), 0);
  EXPECT_LT(Bytes(full.trainer, "blocks of a checkpoint"), numbers * 12 / 4) << "rank 0";
  EXPECT_EQ(full.trainer.checkpoint_copy_bytes, numbers * 12) << "of all ranks";
  const auto state_of_others = [](const JobPlan& of) {
    return Bytes(of.trainer, "other ranks") -
           3 * (Bytes(of.trainer, "program") + Bytes(of.trainer, "logits") +
                Bytes(of.trainer, "gradients of embedding and head"));
  };
  EXPECT_LT(state_of_others(optimizer), state_of_others(none) * 6 / 10);
  EXPECT_LT(state_of_others(full), state_of_others(optimizer) * 7 / 10);
}

TEST(JobPlan, RanksThatBroadcastWeightsKeepTheirShardsOfTwoVersions) {
  TinyJob job = Bf16Job();
  job["trainer"] = "{steps: 2, ranks: 4}";
  const JobPlan without = Plan(job);
  job["weight_sync"] = "{transport: gloo}";
  const JobPlan with = Plan(job);
  EXPECT_NEAR(static_cast<double>(Bytes(with.trainer, "other ranks") -
                                  Bytes(without.trainer, "other ranks")),
              0.75 * static_cast<double>(Bytes(with.trainer, "published versions")), 4);
}

TEST(JobPlan, ActivationCheckpointingKeepsOneNumberPerLayerAndTokenOfTheResidualStream) {
  TinyJob job = Bf16Job();
  const int64_t all = Bytes(Plan(job).trainer, "activations");
  job["trainer"] = "{steps: 2, threads: 2, activation_checkpointing: true}";
  EXPECT_LT(Bytes(Plan(job).trainer, "activations"), all / 2);
}

TEST(JobPlan, AnEvaluationHoldsTheWeightsThatItEvaluates) {
  TinyJob job = Bf16Job();
  const JobPlan without = Plan(job);
  job["eval"] = "{rows: 20}";
  const JobPlan with = Plan(job);
  EXPECT_EQ(Bytes(with.rollout, "evaluated weights"), Bytes(with.rollout, "engine weights"));
  EXPECT_GT(Bytes(with.rollout, "received versions"), Bytes(without.rollout, "received versions"));
}

TEST(JobPlan, CudaIpcTakesCopiesOnTheTrainersGpuButNotInOneProcess) {
  TinyJob job = Bf16Job();
  job["trainer"] = "{steps: 2, device: cuda}";
  EXPECT_EQ(Bytes(Plan(job).trainer, "copies for CUDA IPC"), 0);
  job["weight_sync"] = "{transport: cuda_ipc}";
  const JobPlan plan = Plan(job);
  const int64_t versions = Bytes(plan.trainer, "published versions");
  EXPECT_EQ(Bytes(plan.trainer, "copies for CUDA IPC"), versions);
  EXPECT_EQ(Bytes(plan.local, "copies for CUDA IPC"), 0);
  job["eval"] = "{rows: 20}";
  EXPECT_EQ(Bytes(Plan(job).trainer, "copies for CUDA IPC"), versions / 2 * 3);
}

TEST(JobPlan, OneProcessNeedsWhatItsRolesNeed) {
  const JobPlan plan = Plan(Bf16Job());
  EXPECT_EQ(TotalBytes(plan.local.memory),
            TotalBytes(plan.trainer.memory) + TotalBytes(plan.rollout.memory) -
                Bytes(plan.rollout, "program") - Bytes(plan.rollout, "received versions"));
}

TEST(JobPlan, FasterHardwareAllowsMoreAndSmallerHardwareNeedsMoreDevices) {
  const TinyJob job = Bf16Job();
  Hardware hardware{"one", int64_t{8} << 30, 1e12, 1e11};
  const JobPlan one = Plan(job, &hardware);
  EXPECT_EQ(one.trainer.devices, 1);
  EXPECT_GT(one.trainer.tokens_per_second, 0);
  hardware.flops *= 2;
  const JobPlan fast = Plan(job, &hardware);
  EXPECT_DOUBLE_EQ(fast.trainer.tokens_per_second, 2 * one.trainer.tokens_per_second);
  EXPECT_GT(one.rollout.tokens_per_second, 0);

  const int64_t whole = Bytes(one.trainer, "activations") + Bytes(one.trainer, "logits") +
                        Bytes(one.trainer, "gradients of embedding and head");
  const int64_t divided = Bytes(one.trainer, "weights") + Bytes(one.trainer, "gradients") +
                          Bytes(one.trainer, "gradients of other microbatches") +
                          Bytes(one.trainer, "optimizer state");
  hardware.memory_bytes = (whole + divided / 3) * 10 / 9 + 1000;
  EXPECT_EQ(Plan(job, &hardware).trainer.devices, 3);
  hardware.memory_bytes = whole;
  EXPECT_EQ(Plan(job, &hardware).trainer.devices, 0) << "not with any number";
}

TEST(ParseHardware, NamesAndNumbers) {
  for (const std::string& name : HardwareNames()) {
    const auto known = ParseHardware(name);
    ASSERT_TRUE(known.ok()) << known.status();
    EXPECT_GT(known->memory_bytes, 0);
  }
  const auto given = ParseHardware("400:45.5:24");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_DOUBLE_EQ(given->flops, 400e9);
  EXPECT_DOUBLE_EQ(given->bytes_per_second, 45.5e9);
  EXPECT_EQ(given->memory_bytes, 24'000'000'000);
  for (const char* wrong : {"", "h1000", "400:45", "400:45:0", "400:-1:24", "nan:45:24", "a:b:c"}) {
    EXPECT_THAT(Message(ParseHardware(wrong).status()),
                AllOf(HasSubstr("--hardware"), HasSubstr("h100")))
        << wrong;
  }
}

}  // namespace
}  // namespace freshet
