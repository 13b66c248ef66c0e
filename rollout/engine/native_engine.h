#ifndef FRESHET_ROLLOUT_ENGINE_NATIVE_ENGINE_H_
#define FRESHET_ROLLOUT_ENGINE_NATIVE_ENGINE_H_

#include <memory>
#include <vector>

#include "model/model_config.h"
#include "rollout/engine/engine_batch.h"
#include "rollout/engine/engine_scheduler.h"
#include "rollout/engine/inference_engine.h"

namespace freshet {

// What happens to cached keys and values when new weights arrive.
enum class KvPolicy { kKeep, kRecompute };

struct NativeEngineOptions {
  int64_t max_sequences = 512;      // running samples at most
  int64_t max_batch_tokens = 2048;  // tokens of one forward pass; longer prompts go in chunks
  int64_t cache_blocks = 0;         // 0: enough for max_sequences of full length, within 4 GiB
  bool bf16 = false;                // multiply matrices in bf16
  KvPolicy kv = KvPolicy::kKeep;
};

// Engine over LibTorch: continuous batching on a paged cache, prefill and decode in one batch, one
// prefill per prompt shared by its samples, weights swapped between two batches. Every row of every
// matrix product is computed alike whatever the batch (rows padded to at least 16), so a sample's
// bits do not depend on its neighbours.
// Confined to one thread; LibTorch errors become INTERNAL.
class NativeEngine final : public InferenceEngine {
 public:
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
  absl::Status LoadWeights(Lane lane, const WeightSnapshot& snapshot) override;
  PolicyVersion version(Lane lane) const override;
  EngineStats stats() const override;

  // Log-probs of tokens 1.. of `ids` given those before, through the engine's own path:
  // `one_by_one` decodes token by token on the cache, otherwise as one prompt in chunks. For
  // checks; nothing else may be running. Errors as Submit.
  absl::StatusOr<std::vector<float>> Score(const std::vector<int32_t>& ids, bool one_by_one);

 private:
  struct LaneState;
  struct Model;

  NativeEngine(const ModelConfig& config, const NativeEngineOptions& options);

  // Writes the batch's keys and values, and leaves the logits of its wanted rows in the model.
  void RunBatch(const LaneState& lane, const EngineBatch& batch);

  const ModelConfig config_;
  const NativeEngineOptions options_;
  EngineScheduler scheduler_;
  std::unique_ptr<LaneState> lanes_[kNumLanes];
  std::unique_ptr<Model> model_;
  bool paused_ = false;
  int64_t weight_swaps_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_NATIVE_ENGINE_H_
