#ifndef FRESHET_ROLLOUT_ENGINE_ENGINE_BATCH_H_
#define FRESHET_ROLLOUT_ENGINE_ENGINE_BATCH_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "model/kv_cache_size.h"
#include "rollout/engine/paged_attention.h"
#include "rollout/engine/running_group.h"
#include "rollout/engine/sampling.h"

namespace freshet {

// One forward pass: query tokens, and which of them need logits. Points into the groups that it was
// built from; these must not change until Accept.
struct EngineBatch {
  struct Want {
    RunningGroup* group;
    // Null: all samples of the group draw from this row. The rows of a sample's draft follow that
    // of its last token.
    RunningSample* sample;
    int64_t row;
  };
  std::vector<int64_t> token_ids;
  std::vector<int64_t> positions;
  std::vector<std::pair<int32_t, int64_t>> slots;  // cache block and slot of each token
  std::vector<PagedQuery> queries;
  std::vector<Want> wants;
  int64_t room = 0;        // tokens that can still be added
  int64_t draft_room = 0;  // of these, draft tokens

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

// The tokens that are drawn first: from each want's row of `logits` [wants.size()][vocab_size] for
// its sample, or for all of the group's that have no tokens yet. In the order of the wants and
// samples. Draws with the threads of `pool`.
std::vector<SampledToken> DrawFirst(const EngineBatch& batch, const float* logits,
                                    int64_t vocab_size, ThreadPool& pool);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_ENGINE_BATCH_H_
