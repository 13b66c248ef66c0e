#ifndef FRESHET_MODEL_KERNELS_SEQUENCE_ATTENTION_H_
#define FRESHET_MODEL_KERNELS_SEQUENCE_ATTENTION_H_

#include <cstdint>
#include <vector>

namespace freshet {

// Causal attention of training on the CPU, sequence by sequence, in fp32. Thread-safe.

// Queries, keys and values of a stream of tokens. A token's heads are adjacent; strides are floats
// from token to token. kv_heads divides heads.
struct AttentionInputs {
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t q_stride = 0;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t dim = 0;
};

// Tokens [begin, begin + size), which see the tokens [prefix_begin, prefix_begin + prefix) and
// those of their own up to themselves; of all these the last `window` (0: all).
struct AttentionSequence {
  int64_t begin = 0;
  int64_t size = 0;
  int64_t prefix_begin = 0;
  int64_t prefix = 0;
  int64_t window = 0;
};

// What the forward pass writes and the backward pass reads.
struct AttentionOutputs {
  float* out = nullptr;     // [tokens][heads][dim]
  float* totals = nullptr;  // log-sum-exp of the scores, [tokens][heads]
};

// Gradients. `d` is that of the output; the others have no gaps between tokens.
struct AttentionGradients {
  const float* d = nullptr;  // [tokens][heads][dim]
  float* dq = nullptr;       // [tokens][heads][dim], written
  float* dk = nullptr;       // [tokens][kv_heads][dim], added to
  float* dv = nullptr;
};

// `scratch` grows as needed.
void AttendSequence(const AttentionInputs& in, const AttentionSequence& sequence,
                    const AttentionOutputs& out, std::vector<float>& scratch);
void AttendSequenceGradient(const AttentionInputs& in, const AttentionSequence& sequence,
                            const AttentionOutputs& out, const AttentionGradients& gradients,
                            std::vector<float>& scratch);

}  // namespace freshet

#endif  // FRESHET_MODEL_KERNELS_SEQUENCE_ATTENTION_H_
