#include "trainer/learner/memory_uses.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "model/head_chunk.h"
#include "tests/testing/memory_limit.h"
#include "tests/trainer/learner/policy_learner_fixture.h"
#include "trainer/learner/learner_memory.h"
#include "trainer/learner/microbatch_sizes.h"
#include "trainer/learner/microbatches.h"

namespace freshet {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;
// Bytes of TinyModel's embedding or head with this vocabulary.
constexpr int64_t kVocabulary = 200'000;
constexpr int64_t kHeadBytes = kVocabulary * 32 * 4;

// A learner in a process with too little memory for one of its items.
class MemoryUsesDeathTest : public PolicyLearnerFixture {
 protected:
  MemoryUsesDeathTest() {
    options_.device = "cpu";
    options_.model.vocab_size = kVocabulary;
    options_.model.tie_word_embeddings = true;
  }

  absl::Status InitializeWith(int64_t bytes) {
    const auto learner = PolicyLearner::Create(options_, clock_);
    LimitMemory(bytes);
    try {
      (*learner)->InitializeRandom(1);
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return TorchError(error);
    }
  }
  // Trains on groups of tokens below 32. The gradients and all the rest exist if `has_trained`.
  absl::Status TrainWith(int64_t bytes, bool has_trained, int64_t groups) {
    const auto learner = MakeLearner();
    const std::vector<TrainGroup> batch = OnPolicyGroups(*learner, groups);
    if (has_trained) Train(*learner, 1, OnPolicyGroups(*learner, 1));
    LimitMemory(bytes);
    return learner->TrainStep(2, batch).status();
  }
  // What the message says of an item of `bytes` bytes.
  static std::string Shortage(const std::string& item, int64_t bytes, const std::string& change) {
    return absl::StrFormat(
        "RESOURCE_EXHAUSTED: training failed: no memory for the %s, planned as %.1f MiB: of .* of "
        "host memory .* are available; %s; see freshet plan \\(.*",
        item, static_cast<double>(bytes) / kMebi, change);
  }
};

constexpr char kMore[] =
    "give the trainer more memory, or divide the model by trainer.ranks and trainer.sharding";

TEST_F(MemoryUsesDeathTest, Weights) {
  const int64_t weights = UseOf("weights", options_, at::kCPU).planned_bytes;
  FRESHET_EXPECT_IN_CHILD(ExitWith(InitializeWith(kHeadBytes / 2)),
                          Shortage("weights", weights, kMore));
}

TEST_F(MemoryUsesDeathTest, OptimizerState) {
  const int64_t weights = UseOf("weights", options_, at::kCPU).planned_bytes;
  FRESHET_EXPECT_IN_CHILD(ExitWith(InitializeWith(kHeadBytes * 5 / 2)),
                          Shortage("optimizer state", 2 * weights, kMore));
}

TEST_F(MemoryUsesDeathTest, Gradients) {
  const int64_t gradients = UseOf("gradients", options_, at::kCPU).planned_bytes;
  FRESHET_EXPECT_IN_CHILD(ExitWith(TrainWith(kHeadBytes / 2, /*has_trained=*/false, 1)),
                          Shortage("gradients", gradients, kMore));
}

TEST_F(MemoryUsesDeathTest, Logits) {
  FRESHET_EXPECT_IN_CHILD(ExitWith(TrainWith(kHeadBytes / 4, /*has_trained=*/true, 1)),
                          Shortage("logits", LogitsBytes(kVocabulary, /*on_cpu=*/true),
                                   "lower trainer.max_tokens_per_microbatch"));
}

TEST_F(MemoryUsesDeathTest, Activations) {
  options_.model.vocab_size = 32;
  FRESHET_EXPECT_IN_CHILD(
      ExitWith(TrainWith(4 * kMebi, /*has_trained=*/true, 200)),
      "no memory for the activations of a microbatch of [0-9]+ tokens, planned as .* MiB: of .*; "
      "lower trainer.max_tokens_per_microbatch, set trainer.activation_checkpointing, or lower "
      "rollout.max_new_tokens; see freshet plan");
}

TEST_F(MemoryUsesDeathTest, WithoutMemoryForACopyASnapshotStaysLent) {
  options_.available_memory = [] { return kMebi << 20; };
  FRESHET_EXPECT_IN_CHILD(
      {
        const auto learner = MakeLearner();
        const auto snapshot = *learner->Snapshot();
        LimitMemory(kHeadBytes / 2);
        snapshot->copy();
        ExitWith(snapshot->model[0].Read().status());
      },
      "event=snapshot_lent reason=.*OK");
}

TEST(MemoryUses, TheGradientOfALargeEmbeddingTakesThePlaceOfLogits) {
  PolicyLearnerOptions options;
  options.model = TinyModel();
  options.model.vocab_size = kVocabulary;
  options.model.tie_word_embeddings = true;
  const auto bytes = [&](const char* item) { return UseOf(item, options, at::kCPU).planned_bytes; };
  EXPECT_EQ(bytes("logits"), LogitsBytes(kVocabulary, /*on_cpu=*/true) - kHeadBytes);
  EXPECT_EQ(bytes("gradients of embedding and head"), 2 * kHeadBytes);
}

TEST(MemoryUses, ShorterTreesRunMoreMicrobatchesAtOnceWithinThePlan) {
  PolicyLearnerOptions options;
  options.model = TinyModel();
  options.model.tie_word_embeddings = true;
  options.threads = 8;
  options.max_tokens_per_microbatch = 8192;
  const auto plan = [&](int64_t suffix) {
    return PlanLearner(options, {/*trees=*/16, /*prefix=*/200, /*suffixes=*/8, suffix});
  };
  const auto bytes = [](const MemoryPlan& of, const std::string& name) {
    const auto found = std::ranges::find(of, name, &MemoryItem::name);
    return found == of.end() ? 0 : found->bytes;
  };
  const MemoryPlan longest = plan(551);  // trees of 4600 tokens: only one of them at once
  const std::vector<int64_t> short_trees(16, 600);
  ASSERT_EQ(EndOfWave(short_trees, 0, options.threads, options.max_tokens_per_microbatch), 8U);
  EXPECT_EQ(bytes(longest, "gradients of other microbatches"), 7 * bytes(longest, "gradients"));
  const MemoryPlan half = plan(276);
  ASSERT_EQ(half.size(), longest.size());
  for (const MemoryItem& item : half) EXPECT_LE(item.bytes, bytes(longest, item.name)) << item.name;
}

TEST(MemoryUses, OfAGpuNameIt) {
  PolicyLearnerOptions options;
  options.model = TinyModel();
  options.activation_checkpointing = true;
  const at::Device gpu(at::kCUDA, 0);
  const MemoryUse weights = UseOf("weights", options, gpu);
  EXPECT_EQ(weights.device, gpu);
  EXPECT_THAT(weights.change, testing::HasSubstr("GPU with more memory"));
  EXPECT_EQ(UseOf("weights in host memory", options, gpu).device, at::Device(at::kCPU));
  EXPECT_EQ(ReferenceOf(options, gpu).planned_bytes, weights.planned_bytes);
  EXPECT_EQ(ActivationsOf(10, options, gpu).change,
            "lower trainer.max_tokens_per_microbatch, or lower rollout.max_new_tokens");
}

}  // namespace
}  // namespace freshet
