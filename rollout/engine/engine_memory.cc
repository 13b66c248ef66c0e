#include "rollout/engine/engine_memory.h"

#include <algorithm>

#include "model/kv_cache_size.h"
#include "model/parameter_layout.h"
#include "rollout/engine/kernels/matrix.h"

namespace freshet {

int64_t CacheBlocks(const ModelConfig& config, const NativeEngineOptions& options) {
  if (options.cache_blocks > 0) return options.cache_blocks;
  const int64_t full = KvBlocksOfGroup(config.max_position_embeddings, 1, 0);
  const int64_t affordable =
      std::max<int64_t>(1, options.cache_bytes / KvBlockBytes(config, options.bf16));
  return std::min(affordable, (options.max_sequences + 1) * full * 2);
}

int64_t PackedWeightBytes(const ModelConfig& config, const NativeEngineOptions& options) {
  const int64_t embedding = config.vocab_size * config.hidden_size;
  // The head has its own copy of tied weights.
  const int64_t numbers =
      MakeParameterLayout(config).num_parameters + (config.tie_word_embeddings ? embedding : 0);
  if (!options.int8_weights) return numbers * (options.bf16 ? 2 : 4);
  const int64_t products = numbers - embedding;
  return 2 * embedding + products + products / kInt8Block * 4;
}

MemoryPlan PlanEngine(const ModelConfig& config, const NativeEngineOptions& options,
                      int64_t running, bool evaluates) {
  const int64_t weights = PackedWeightBytes(config, options);
  const int64_t queries = config.num_attention_heads * config.head_dim;
  const int64_t keys = config.num_key_value_heads * config.head_dim;
  // The residual stream, q, k, v, the output of attention, gate and up, and inputs of products.
  const int64_t row =
      3 * config.hidden_size + 3 * queries + 2 * keys + 3 * config.intermediate_size;
  const int64_t sampled = std::min(running, options.max_sequences) * config.num_outputs();
  MemoryPlan plan = {{kEngineWeights, weights},
                     {kKvCache, CacheBlocks(config, options) * KvBlockBytes(config, options.bf16),
                      MemoryItem::Place::kDevice, /*is_upper_bound=*/true},
                     {kBatch, 4 * (options.max_batch_tokens * row + sampled)}};
  if (evaluates) plan.push_back({kEvaluatedWeights, weights});
  return plan;
}

}  // namespace freshet
