#ifndef FRESHET_ROLLOUT_ENGINE_ENGINE_SCHEDULER_H_
#define FRESHET_ROLLOUT_ENGINE_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <list>
#include <vector>

#include "absl/status/status.h"
#include "model/model_config.h"
#include "rollout/engine/engine_batch.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/engine/kv_cache.h"
#include "rollout/engine/prefix_index.h"
#include "rollout/engine/sampling.h"

namespace freshet {

struct EngineLimits {
  int64_t max_sequences = 512;
  int64_t max_batch_tokens = 2048;
  int64_t cache_blocks = 1;
  bool prefix_cache = true;
};

// Schedules the tokens that an engine computes: holds the requests of both lanes, allocates the
// paged cache, builds batches of prompt and response tokens, and samples responses. Independent of
// weights: the engine runs the forward pass between Fill and Accept. Sequences of a lane share the
// cache blocks of a common prefix while the weights stay the same. Blocks of ended sequences are
// kept until other tokens need them. Not thread-safe.
class EngineScheduler {
 public:
  EngineScheduler(const ModelConfig& config, const EngineLimits& limits);

  // See InferenceEngine.
  int64_t Admissible(int64_t prompt_tokens, int64_t num_samples, const SamplingParams& sampling,
                     int64_t most) const;
  absl::Status Submit(GenerationRequest request);
  std::vector<GenerationOutput> Cancel(int64_t request_id);
  // INVALID_ARGUMENT for a request that the model cannot serve under any load.
  absl::Status CheckRequest(const GenerationRequest& request) const;
  bool HasWork(Lane lane) const { return !groups_[static_cast<int>(lane)].empty(); }

  // The lane's next batch; empty if there is nothing to compute. Allocates the blocks of its
  // tokens; the engine must write their keys and values.
  EngineBatch Fill(Lane lane);
  // Call once the keys and values of `batch` are in the cache. Samples a token for every entry of
  // batch.wants from its row of `logits` [batch.wants.size()][vocab_size], stamps it with `policy`,
  // and returns the finished samples.
  std::vector<GenerationOutput> Accept(Lane lane, const EngineBatch& batch, const float* logits,
                                       PolicyVersion policy);
  // Call when the lane's weights change. No later sequence uses what is in the cache. Running ones
  // are fed again with `recompute`, and otherwise continue on it.
  void WeightsChanged(Lane lane, bool recompute);

  // A block of the cache for the caller, who must release it. See KvCache::Allocate.
  int32_t AllocateBlock();
  KvCache& cache() { return cache_; }
  const KvCache& cache() const { return cache_; }
  const EngineLimits& limits() const { return limits_; }
  // Running samples, cache and counters; the rest is 0.
  EngineStats stats() const;

 private:
  void FillFromGroup(RunningGroup& group, EngineBatch& batch);
  void FillFromSample(RunningGroup& group, RunningSample& sample, EngineBatch& batch);
  void Fork(RunningGroup& group, RunningSample& sample);
  // References the blocks of the longest prefix of `tokens` that is in the cache, except the last
  // token, from the `skip`th block on, and appends them to `table`.
  void Reuse(Lane lane, const std::vector<int32_t>& tokens, int64_t skip,
             std::vector<int32_t>& table);
  // Makes the blocks that hold `tokens` available to later sequences.
  void Retain(Lane lane, const std::vector<int32_t>& tokens, const std::vector<int32_t>& table);
  void Draw(Lane lane, RunningGroup& group, RunningSample& sample, const float* logits,
            PolicyVersion policy, std::vector<GenerationOutput>& finished);
  void RemoveFinished(Lane lane);
  void Release(const RunningGroup& group, RunningSample& sample);
  void Release(RunningGroup& group);
  void ReleaseLastFirst(const std::vector<int32_t>& blocks);

  const ModelConfig config_;
  const EngineLimits limits_;
  KvCache cache_;
  PrefixIndex prefixes_;
  std::list<RunningGroup> groups_[kNumLanes];
  int64_t reserved_blocks_ = 0;
  int64_t running_ = 0;
  EngineStats counters_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_ENGINE_SCHEDULER_H_
