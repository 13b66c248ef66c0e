#ifndef FRESHET_MODEL_HEAD_CHUNK_H_
#define FRESHET_MODEL_HEAD_CHUNK_H_

#include <algorithm>
#include <cstdint>

namespace freshet {

// Memory for the logits of a chunk, with all that is computed from them. A GPU needs more rows at a
// time to be busy.
constexpr int64_t HeadChunkBytes(bool on_cpu) {
  return on_cpu ? int64_t{24} << 20 : int64_t{1} << 30;
}

// Rows of logits, or tokens of the vocabulary, that a chunk has at least.
inline constexpr int64_t kLeastHeadChunk = 32;
// Bytes of a logit: fp32, the product's bf16, and an exponential.
inline constexpr int64_t kLogitBytes = 10;

// How many rows of logits, or tokens of the vocabulary, fit in HeadChunkBytes; at least
// kLeastHeadChunk. `width`: logits of each, the size of the vocabulary or the number of rows;
// `others`: bytes of each beyond the logits. Pure.
inline int64_t HeadChunkSize(int64_t width, bool on_cpu, int64_t others = 0) {
  return std::max(kLeastHeadChunk,
                  HeadChunkBytes(on_cpu) / (std::max<int64_t>(width, 1) * kLogitBytes + others));
}

// Memory for the logits of a chunk of rows. Pure.
inline int64_t LogitsBytes(int64_t vocab_size, bool on_cpu) {
  return std::max(HeadChunkBytes(on_cpu), kLeastHeadChunk * vocab_size * kLogitBytes);
}

}  // namespace freshet

#endif  // FRESHET_MODEL_HEAD_CHUNK_H_
