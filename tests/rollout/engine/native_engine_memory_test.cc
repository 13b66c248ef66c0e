#include "absl/strings/str_format.h"
#include "model/torch_threads.h"
#include "rollout/engine/engine_memory.h"
#include "tests/rollout/engine/engine_run.h"
#include "tests/testing/memory_limit.h"

namespace freshet {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

// An engine in a process with too little memory, with the CPU's kernels and with LibTorch.
class NativeEngineMemoryDeathTest : public testing::TestWithParam<bool> {
 protected:
  NativeEngineMemoryDeathTest() {
    UseOneTorchThread();
    options_.aten = GetParam();
    options_.max_sequences = 4;
    options_.cache_blocks = 8;
  }

  static std::string Shortage(const std::string& item, int64_t bytes) {
    return absl::StrFormat(
        "no memory for the %s, planned as %.1f MiB: of .* of host memory .* are available; lower "
        "rollout.kv_cache_bytes",
        item, static_cast<double>(bytes) / kMebibyte);
  }
  int64_t Planned(const std::string& item) const {
    for (const MemoryItem& planned : PlanEngine(config_, options_, 4, /*evaluates=*/true)) {
      if (planned.name == item) return planned.bytes;
    }
    return 0;
  }

  ModelConfig config_ = TinyModel();
  NativeEngineOptions options_;
};

TEST_P(NativeEngineMemoryDeathTest, Cache) {
  options_.cache_blocks = 100'000;
  FRESHET_EXPECT_IN_CHILD(
      {
        LimitMemory(64 * kMebibyte);
        ExitWith(NativeEngine::Create(config_, options_).status());
      },
      "RESOURCE_EXHAUSTED: cannot create the engine: " + Shortage("KV cache", Planned("KV cache")));
}

TEST_P(NativeEngineMemoryDeathTest, Weights) {
  config_.vocab_size = 200'000;
  options_.bf16 = true;  // the arena is not
  FRESHET_EXPECT_IN_CHILD(
      {
        const auto engine = NativeEngine::Create(config_, options_);
        const WeightSnapshot weights = RandomWeights(config_, 1, {0, 1});
        LimitMemory(8 * kMebibyte);
        ExitWith((*engine)->LoadWeights(Lane::kRollout, weights));
      },
      "RESOURCE_EXHAUSTED: weights could not be loaded: " +
          Shortage("engine weights", Planned("engine weights")));
}

TEST_P(NativeEngineMemoryDeathTest, Batch) {
  config_.max_position_embeddings = 2048;
  options_.cache_blocks = 2048;
  FRESHET_EXPECT_IN_CHILD(
      {
        const auto engine = NativeEngine::Create(config_, options_);
        const absl::Status loaded =
            (*engine)->LoadWeights(Lane::kRollout, RandomWeights(config_, 1, {0, 1}));
        GenerationRequest request;
        request.prompt_ids.assign(2000, 1);
        request.sample_indices = {0};
        request.sampling.max_new_tokens = 1;
        const absl::Status submitted = (*engine)->Submit(std::move(request));
        if (!loaded.ok() || !submitted.ok()) std::abort();
        LimitMemory(1 * kMebibyte);
        ExitWith((*engine)->Poll().status());
      },
      "INTERNAL: the engine failed: " + Shortage("batch", Planned("batch")) +
          ".* or "
          "rollout.max_batch_tokens");
}

INSTANTIATE_TEST_SUITE_P(Runners, NativeEngineMemoryDeathTest, testing::Bool(),
                         [](const auto& param) { return param.param ? "LibTorch" : "Kernels"; });

}  // namespace
}  // namespace freshet
