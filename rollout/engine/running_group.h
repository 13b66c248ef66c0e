#ifndef FRESHET_ROLLOUT_ENGINE_RUNNING_GROUP_H_
#define FRESHET_ROLLOUT_ENGINE_RUNNING_GROUP_H_

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "datastore/trajectory.h"
#include "rollout/engine/draft_lookup.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/engine/sampling.h"
#include "rollout/engine/stop_strings.h"

namespace freshet {

// One sample being generated. `fed` response tokens are in the cache. Once all are fed, a new token
// is sampled.
struct RunningSample {
  int32_t index = 0;
  int64_t number = 0;  // among the samples of its request
  Response response;
  int64_t fed = 0;
  bool forked = false;  // owns a block table that starts with the prompt
  std::vector<int32_t> blocks;
  TokenCounts counts;                         // only if the sampling adjusts logits
  std::unique_ptr<StopMatcher> stop_matcher;  // null without stop strings
  std::vector<int32_t> draft;                 // from Fill to Accept; follows the fed tokens
  DraftAllowance allowance;
};

// One request: its prompt's cache blocks, and its samples.
struct RunningGroup {
  GenerationRequest request;
  int64_t fed = 0;  // prompt tokens in the cache
  std::vector<int32_t> blocks;
  std::list<RunningSample> samples;
  int64_t arrival = 0;     // number of the request
  int64_t expected = 0;    // response tokens for which it was admitted
  int64_t found = 0;       // prompt tokens whose blocks were found by their prefix
  bool preempted = false;  // has no blocks and waits for room
  bool computing = false;  // between Fill and Accept; stays if the forward pass fails
  // Its keys and values are not those of one version of the weights, so nothing else uses them.
  bool mixed = false;
  std::unique_ptr<DraftLookup> lookup;  // null without speculative decoding

  int64_t prompt_size() const { return static_cast<int64_t>(request.prompt_ids.size()); }
  bool prompt_done() const { return fed == prompt_size(); }
};

// The prompt and a response.
std::vector<int32_t> Tokens(const RunningGroup& group, const std::vector<int32_t>& response);

// Tokens of the prompt and the responses that are not in the cache.
int64_t TokensToFeed(const RunningGroup& group);

// Blocks that a group needs until each of its samples has the expected length, or room for a draft
// of `draft_tokens`. Blocks that it shares with other groups count too.
int64_t BlocksWanted(const RunningGroup& group, int64_t draft_tokens);
int64_t BlocksHeld(const RunningGroup& group);

// Prepares what later tokens of `sample` depend on, beside the cache.
void StartSampling(const GenerationRequest& request, RunningSample& sample);
// Prepares drafts of all samples.
void StartDrafting(RunningGroup& group);

// The next token of the sample, drawn from `logits` [vocab_size]. Pure.
SampledToken DrawNext(const GenerationRequest& request, const RunningSample& sample,
                      const float* logits, int64_t vocab_size);
// Appends `token` to the response, stamped with `policy`.
GeneratedToken Append(const GenerationRequest& request, RunningSample& sample, SampledToken token,
                      PolicyVersion policy);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_RUNNING_GROUP_H_
