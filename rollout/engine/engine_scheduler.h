#ifndef FRESHET_ROLLOUT_ENGINE_ENGINE_SCHEDULER_H_
#define FRESHET_ROLLOUT_ENGINE_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <list>
#include <vector>

#include "absl/status/status.h"
#include "base/thread_pool.h"
#include "model/model_config.h"
#include "rollout/engine/engine_batch.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/engine/kv_block_pool.h"
#include "rollout/engine/prefix_cache.h"
#include "rollout/engine/sampling.h"

namespace freshet {

struct EngineLimits {
  int64_t max_sequences = 512;
  int64_t max_batch_tokens = 2048;
  bool prefix_cache = true;
  // Average length of responses until some have ended.
  int64_t expected_new_tokens = 256;
  int64_t speculative_tokens = 0;  // most tokens that are drafted for a sample; 0: none
};

// Schedules the tokens that an engine computes: holds the requests of both lanes, allocates the
// paged cache, builds batches of prompt and response tokens, and samples responses. Independent of
// weights: the engine runs the forward pass between Fill and Accept. Sequences of a lane share the
// cache blocks of a common prefix while the weights stay the same. Blocks of ended sequences are
// kept until other tokens need them.
//
// A request is admitted if the cache has room for its samples at the average length of the latest
// responses. If the cache turns out to be too small, the newest requests are preempted: they give
// their blocks up, keep their tokens, and are computed again once there is room, before any new
// request is admitted. The oldest one always runs.
//
// Speculative decoding: the next tokens of a sample are drafted (DraftLookup) and computed in the
// same batch. Each token is drawn from its own logits with its own random number; as long as the
// tokens drawn are those of the draft, the logits of the next ones are there already (Leviathan et
// al. 2023, section 2.3, for drafts without probabilities). So drafts change no token and no
// log-prob. Not thread-safe.
class EngineScheduler {
 public:
  // `cache` must outlive the scheduler, which allocates all its blocks.
  EngineScheduler(const ModelConfig& config, const EngineLimits& limits, KvBlockPool& cache);

  // See InferenceEngine.
  int64_t Admissible(int64_t prompt_tokens, int64_t num_samples, const SamplingParams& sampling,
                     int64_t most) const;
  absl::Status Submit(GenerationRequest request);
  std::vector<GenerationOutput> Cancel(int64_t request_id);
  bool HasWork(Lane lane) const { return !groups_[static_cast<int>(lane)].empty(); }

  // The lane's next batch; empty if there is nothing to compute. Allocates the blocks of its
  // tokens; the engine must write their keys and values.
  EngineBatch Fill(Lane lane);
  // Call once the keys and values of `batch` are in the cache. Samples a token for every entry of
  // batch.wants from its row of `logits` [batch.wants.size()][num_outputs], except after a draft
  // token that was not drawn, stamps it with `policy`, and returns the finished samples. Draws with
  // the threads of `pool`. Of a scalar head, the rows are the scores of pooled requests.
  std::vector<GenerationOutput> Accept(Lane lane, const EngineBatch& batch, const float* logits,
                                       PolicyVersion policy, ThreadPool& pool);
  // Call when the lane's weights change. No later sequence uses what is in the cache. Running ones
  // are fed again with `recompute`, and otherwise continue on it.
  void WeightsChanged(Lane lane, bool recompute);

  // A block of the cache for the caller, who must release it. See KvBlockPool::Allocate.
  int32_t AllocateBlock() { return prefixes_.Allocate(); }
  const EngineLimits& limits() const { return limits_; }
  // Running samples, cache and counters; the rest is 0.
  EngineStats stats() const;

 private:
  void FillFromGroup(RunningGroup& group, EngineBatch& batch);
  void FillFromSample(RunningGroup& group, RunningSample& sample, EngineBatch& batch);
  void Fork(RunningGroup& group, RunningSample& sample);
  // Ends pooled requests with their rows of `scores` [batch.wants.size()].
  static std::vector<GenerationOutput> TakeScores(Lane lane, const EngineBatch& batch,
                                                  const float* scores);
  void Take(Lane lane, RunningGroup& group, RunningSample& sample, SampledToken drawn,
            PolicyVersion policy, std::vector<GenerationOutput>& finished);
  // Takes `first`, drawn from the row of the sample's last token, and draws from those of the draft
  // tokens that are drawn.
  void TakeAlongDraft(Lane lane, RunningGroup& group, RunningSample& sample, SampledToken first,
                      const float* logits, PolicyVersion policy,
                      std::vector<GenerationOutput>& finished);
  void RemoveFinished(Lane lane);
  // Length that a response is assumed to reach, in tokens.
  int64_t ExpectedTokens(const SamplingParams& sampling) const;
  // Free blocks beyond those that the running groups will need; below 0 if they will not all fit.
  int64_t Room() const;
  void PreemptUntilAllFit();
  void Resume(Lane lane);
  // Releases the blocks; later sequences may find them if `retain`. The tokens stay.
  void Unload(const RunningGroup& group, RunningSample& sample, bool retain);
  void Unload(RunningGroup& group, bool retain);

  const ModelConfig config_;
  const EngineLimits limits_;
  KvBlockPool& cache_;
  PrefixCache prefixes_;
  std::list<RunningGroup> groups_[kNumLanes];
  int64_t running_ = 0;  // samples, also of preempted groups
  int64_t last_arrival_ = 0;
  double average_length_;  // of responses, in tokens; the latest weigh most
  EngineStats counters_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_ENGINE_SCHEDULER_H_
