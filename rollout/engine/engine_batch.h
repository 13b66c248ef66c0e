#ifndef FRESHET_ROLLOUT_ENGINE_ENGINE_BATCH_H_
#define FRESHET_ROLLOUT_ENGINE_ENGINE_BATCH_H_

#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "datastore/trajectory.h"
#include "rollout/engine/inference_engine.h"
#include "rollout/engine/kv_cache.h"
#include "rollout/engine/paged_attention.h"

namespace freshet {

// One sample being generated. `fed` response tokens are in the cache. Once all are fed, a new token
// is sampled.
struct RunningSample {
  int32_t index = 0;
  Response response;
  int64_t fed = 0;
  bool forked = false;  // owns a block table that starts with the prompt
  std::vector<int32_t> blocks;
  TokenCounts counts;                         // only if the sampling adjusts logits
  std::unique_ptr<StopMatcher> stop_matcher;  // null without stop strings
};

// One request: its prompt's cache blocks, and its samples.
struct RunningGroup {
  GenerationRequest request;
  int64_t fed = 0;  // prompt tokens in the cache
  std::vector<int32_t> blocks;
  std::list<RunningSample> samples;
  int64_t reserved = 0;    // cache blocks reserved
  int64_t found = 0;       // prompt tokens whose blocks were found by their prefix
  bool computing = false;  // between Fill and Accept; stays if the forward pass fails
  // Its keys and values are not those of one version of the weights, so nothing else uses them.
  bool mixed = false;

  int64_t prompt_size() const { return static_cast<int64_t>(request.prompt_ids.size()); }
  bool prompt_done() const { return fed == prompt_size(); }
};

// One forward pass: query tokens, and which of them need logits. Points into the groups that it was
// built from; these must not change until Accept.
struct EngineBatch {
  struct Want {
    RunningGroup* group;
    RunningSample* sample;  // null: all samples of the group draw from this row
    int64_t row;
  };
  std::vector<int64_t> token_ids;
  std::vector<int64_t> positions;
  std::vector<std::pair<int32_t, int64_t>> slots;  // cache block and slot of each token
  std::vector<PagedQuery> queries;
  std::vector<Want> wants;
  int64_t room = 0;  // tokens that can still be added

  int64_t size() const { return static_cast<int64_t>(token_ids.size()); }
  // `blocks` is the block table of the token's sequence; its address is kept.
  void Add(int64_t token, int64_t position, const std::vector<int32_t>& blocks) {
    token_ids.push_back(token);
    positions.push_back(position);
    slots.emplace_back(blocks[static_cast<size_t>(position / kKvBlockTokens)],
                       position % kKvBlockTokens);
    queries.push_back({blocks.data(), position + 1});
    --room;
  }
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_ENGINE_BATCH_H_
