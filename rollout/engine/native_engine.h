#ifndef FRESHET_ROLLOUT_ENGINE_NATIVE_ENGINE_H_
#define FRESHET_ROLLOUT_ENGINE_NATIVE_ENGINE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/model_config.h"
#include "rollout/engine/engine_batch.h"
#include "rollout/engine/engine_scheduler.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/engine/kernels/cpu_features.h"
#include "rollout/engine/model_runner.h"
#include "rollout/engine/phase_clock.h"

namespace freshet {

// What happens to cached keys and values when new weights arrive.
enum class KvPolicy { kKeep, kRecompute };

constexpr int64_t kDefaultKvCacheBytes = int64_t{4} << 30;

struct NativeEngineOptions {
  int64_t max_sequences = 512;      // maximum number of running samples
  int64_t max_batch_tokens = 2048;  // per forward pass; longer prompts are split
  // Of keys and values; no more than max_sequences need at their longest.
  int64_t cache_bytes = kDefaultKvCacheBytes;
  int64_t cache_blocks = 0;   // if above 0, instead of cache_bytes
  bool bf16 = false;          // bf16 weights, matrix products, keys and values
  bool int8_weights = false;  // int8 matrix products; the embedding is bf16. Not with aten
  int threads = 1;            // of the kernels, including the caller of Poll
  // Of weights and cache: see OpenDevice; with int8_weights "auto" is the CPU. Sampling is on the
  // CPU.
  std::string device = "cpu";
  bool aten = false;  // compute with ATen instead of the CPU kernels, as on other devices
  // The choice of the CPU kernels does not depend on measured speeds, as far as they change
  // results.
  bool deterministic = false;
  std::optional<CpuKernels> kernels;  // instead of a choice; this CPU must have them
  KvPolicy kv = KvPolicy::kKeep;
  bool prefix_cache = true;           // sequences share the cache of a common prefix
  int64_t expected_new_tokens = 256;  // average length of responses until some have ended
  // Most tokens that are drafted for a sample from its group's text, to be computed together. They
  // change no result. 0: none; at most kMaxDraftTokens.
  int64_t speculative_tokens = 0;
};

// In-process engine: continuous batching on a paged cache, prefill and decode in one batch, one
// prefill per prompt shared by its samples, weight swaps between batches. With the
// CPU kernels, results are batch-invariant: every row of every matrix product is computed the same
// way in any batch. Not thread-safe. Exceptions of the runner become INTERNAL.
class NativeEngine final : public InferenceEngine {
 public:
  // INVALID_ARGUMENT naming the option; errors of OpenDevice; RESOURCE_EXHAUSTED, naming the item
  // of PlanEngine, its size and what to change: there is too little memory.
  static absl::StatusOr<std::unique_ptr<NativeEngine>> Create(const ModelConfig& config,
                                                              const NativeEngineOptions& options);
  ~NativeEngine() override;

  int64_t Admissible(int64_t prompt_tokens, int64_t num_samples, const SamplingParams& sampling,
                     int64_t most) const override;
  absl::Status Submit(GenerationRequest request) override;
  absl::StatusOr<std::vector<GenerationOutput>> Poll() override;
  bool Idle() const override;
  std::vector<GenerationOutput> Cancel(int64_t request_id) override;
  void Pause(bool paused) override { paused_ = paused; }
  // Takes fp32 and bf16 arenas, whatever the options. RESOURCE_EXHAUSTED as Create.
  absl::Status LoadWeights(Lane lane, const WeightSnapshot& snapshot) override;
  // What computes its products, and why.
  std::string DescribeKernels() const;
  // Tokens of the longest sequence that the engine can hold: the model's context, or less if the
  // cache is smaller.
  int64_t context() const;
  PolicyVersion version(Lane lane) const override {
    return versions_[static_cast<int>(lane)].value_or(PolicyVersion{-1, -1});
  }
  EngineStats stats() const override;
  // Where Poll has spent its time. With ATen, products and attention are in kOther.
  const PhaseClock& phases() const { return runner_->phases(); }

  // Log-probs of tokens 1.. of `ids`, each given its predecessors, computed by the engine's own
  // path: `one_by_one` decodes token by token on the cache, otherwise the ids are prefilled in
  // chunks. For checks; the engine must be idle. Errors as for Submit.
  absl::StatusOr<std::vector<float>> Score(const std::vector<int32_t>& ids, bool one_by_one);

 private:
  NativeEngine(const ModelConfig& config, const NativeEngineOptions& options,
               std::unique_ptr<ModelRunner> runner);
  const float* Run(Lane lane, const EngineBatch& batch);
  bool HasWeights(Lane lane) const { return versions_[static_cast<int>(lane)].has_value(); }

  const ModelConfig config_;
  const NativeEngineOptions options_;
  const std::unique_ptr<ModelRunner> runner_;
  EngineScheduler scheduler_;   // of the runner's cache
  const int64_t num_elements_;  // of the weights
  std::optional<PolicyVersion> versions_[kNumLanes];
  bool paused_ = false;
  int64_t weight_swaps_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_NATIVE_ENGINE_H_
