#ifndef FRESHET_MODEL_KV_CACHE_SIZE_H_
#define FRESHET_MODEL_KV_CACHE_SIZE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "model/model_config.h"

namespace freshet {

// Tokens per block of an engine's KV cache: one AVX-512 register of fp32 scores.
constexpr int64_t kKvBlockTokens = 16;

// Bytes of a block: keys and values of all layers, bf16 or fp32.
int64_t KvBlockBytes(const ModelConfig& config, bool bf16);

// Blocks that hold this number of tokens.
int64_t KvBlocks(int64_t tokens);

// Blocks that samples of one prompt need at their longest. They share the prompt's whole blocks.
int64_t KvBlocksOfGroup(int64_t prompt_tokens, int64_t num_samples, int64_t max_new_tokens);

// INVALID_ARGUMENT naming rollout.kv_cache_bytes if the key is set and a group of the job does not
// fit with a prompt of `prompt_tokens`.
absl::Status CheckKvCacheBytes(const job::v1::JobSpec& spec, const ModelConfig& config,
                               int64_t prompt_tokens);

}  // namespace freshet

#endif  // FRESHET_MODEL_KV_CACHE_SIZE_H_
