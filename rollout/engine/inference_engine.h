#ifndef FRESHET_ROLLOUT_ENGINE_INFERENCE_ENGINE_H_
#define FRESHET_ROLLOUT_ENGINE_INFERENCE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/trajectory.h"
#include "rollout/engine/sampling.h"
#include "weights/manifest.h"

namespace freshet {

// Selects the weights of a request: the rollout lane follows every new version in flight, the
// evaluation lane keeps its pinned version.
enum class Lane { kRollout, kEvaluation };
constexpr int kNumLanes = 2;

// A token that was just sampled.
struct GeneratedToken {
  int32_t sample_index = 0;
  SampledToken token;
  PolicyVersion policy;
  FinishReason finish = FinishReason::kNone;  // set on the sample's last token
};

// Several samples of one prompt. The prompt is computed once and shared.
struct GenerationRequest {
  int64_t id = 0;  // chosen by the caller, unique among requests in flight
  Lane lane = Lane::kRollout;
  std::vector<int32_t> prompt_ids;
  // Random number keys: a token depends only on (seed, ordinal, sample index, position) and the
  // weights, never on its batch.
  uint64_t seed = 0;
  int64_t ordinal = 0;
  std::vector<int32_t> sample_indices;
  // Tokens kept from an earlier attempt, aligned with sample_indices, or empty.
  std::vector<Response> partials;
  SamplingParams sampling;
  // Called within Poll for every token, before the output of its sample is returned. May be empty.
  // Must not call the engine.
  std::function<void(const GeneratedToken&)> on_token = nullptr;
  // Not empty: a pooled request to a model with a scalar head. Nothing is generated: max_new_tokens
  // is 0, and there is one sample, whose response stays empty. Called within Poll, before that is
  // returned, with the head's output for the prompt's last token, without activation. Must not call
  // the engine.
  std::function<void(float)> on_score = nullptr;
};

struct GenerationOutput {
  int64_t request_id = 0;
  Lane lane = Lane::kRollout;
  int32_t sample_index = 0;
  // behavior_logprobs are SampledToken::logprob. sampling_logprobs, SampledToken::sampling_logprob,
  // are set if sampling.ChangesDistribution() or a partial had them.
  Response response;
  // Not OK: the engine has given up the request and dropped its other samples; index and response
  // are unset. INVALID_ARGUMENT: it would fail again.
  absl::Status error = absl::OkStatus();
};

struct EngineStats {
  int64_t running_sequences = 0;
  int64_t capacity_sequences = 0;
  int64_t cache_blocks = 0;
  int64_t cache_blocks_free = 0;
  int64_t tokens_generated = 0;  // since creation, rollout lane
  int64_t tokens_generated_evaluation = 0;
  int64_t tokens_prefilled = 0;  // of prompts, without those found in the cache
  int64_t tokens_reused = 0;     // of prompts and kept responses, found in the cache
  // Of speculative decoding, in both lanes: draft tokens that were computed, and those of them that
  // were drawn.
  int64_t tokens_drafted = 0;
  int64_t tokens_accepted = 0;
  int64_t preemptions = 0;  // requests that gave their cache up to others, to be computed again
  int64_t weight_swaps = 0;
  // Most tokens of prompt and response that the inference server takes; 0: not known yet, or no
  // server.
  int64_t max_tokens = 0;
  // Of an engine with a server: 1 while that cannot generate, and how often it was lost and started
  // anew.
  int64_t servers_down = 0;
  int64_t server_restarts = 0;
};

// Token-in, token-out generation. Adapters of other inference servers implement the same interface.
// Not thread-safe.
class InferenceEngine {
 public:
  virtual ~InferenceEngine() = default;

  // How many requests of this size Submit would accept now, up to `most`.
  virtual int64_t Admissible(int64_t prompt_tokens, int64_t num_samples,
                             const SamplingParams& sampling, int64_t most) const = 0;

  // Queues the samples of one prompt.
  // Returns:
  //   INVALID_ARGUMENT: empty prompt, token outside the vocabulary, prompt plus max_new_tokens
  //   beyond the model's context or the size of the cache, bad sampling parameters, or a request
  //   that the model's head cannot serve.
  //   RESOURCE_EXHAUSTED: no room now; retry after some samples have finished.
  //   FAILED_PRECONDITION: the lane has no weights yet.
  virtual absl::Status Submit(GenerationRequest request) = 0;

  // Runs one batch of tokens and returns the samples that it finished, and an output with an error
  // for each request that fails by itself. An empty result with Idle() true means that there is
  // nothing to do. Returns an error if the engine fails: any of its requests may be the reason.
  virtual absl::StatusOr<std::vector<GenerationOutput>> Poll() = 0;
  virtual bool Idle() const = 0;

  // Stops a request. Its unfinished samples are returned as partial responses (finish kNone).
  virtual std::vector<GenerationOutput> Cancel(int64_t request_id) = 0;

  // While paused, Poll generates nothing in the rollout lane.
  virtual void Pause(bool paused) = 0;

  // Swaps the lane's weights at a token boundary. Samples in flight continue; later tokens are
  // stamped with the new version. INVALID_ARGUMENT if the snapshot is for another model.
  virtual absl::Status LoadWeights(Lane lane, const WeightSnapshot& snapshot) = 0;

  // The version of the lane's next token; {-1, -1} without weights.
  virtual PolicyVersion version(Lane lane) const = 0;
  virtual EngineStats stats() const = 0;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_INFERENCE_ENGINE_H_
