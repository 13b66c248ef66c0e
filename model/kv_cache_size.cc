#include "model/kv_cache_size.h"

#include "base/str_cat.h"

namespace freshet {

int64_t KvBlocks(int64_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

int64_t KvBlockBytes(const ModelConfig& config, bool bf16) {
  const int64_t numbers =
      config.num_hidden_layers * config.num_key_value_heads * 2 * config.head_dim * kKvBlockTokens;
  return numbers * (bf16 ? 2 : 4);
}

int64_t KvBlocksOfGroup(int64_t prompt_tokens, int64_t num_samples, int64_t max_new_tokens) {
  // Each sample needs its own copy of the prompt's last, partly filled block.
  const int64_t own = KvBlocks(prompt_tokens + max_new_tokens) - prompt_tokens / kKvBlockTokens;
  return KvBlocks(prompt_tokens) + num_samples * own;
}

absl::Status CheckKvCacheBytes(const job::v1::JobSpec& spec, const ModelConfig& config,
                               int64_t prompt_tokens) {
  if (!spec.rollout().has_kv_cache_bytes()) return absl::OkStatus();
  const int64_t blocks =
      KvBlocksOfGroup(prompt_tokens, spec.group_size(), spec.rollout().max_new_tokens());
  const int64_t needed = blocks * KvBlockBytes(config, spec.model().dtype() == "bf16");
  if (needed <= spec.rollout().kv_cache_bytes()) return absl::OkStatus();
  return InvalidArgument("rollout.kv_cache_bytes: ", spec.rollout().kv_cache_bytes(),
                         " bytes do not hold a group of ", spec.group_size(),
                         " samples with a prompt of ", prompt_tokens, " tokens and ",
                         spec.rollout().max_new_tokens(), " new ones; it needs ", needed);
}

}  // namespace freshet
