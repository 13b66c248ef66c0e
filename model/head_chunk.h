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

// Rows of logits that are held at a time for a vocabulary of `vocab_size`: HeadChunkBytes of them,
// or 32. Pure.
inline int64_t HeadChunkRows(int64_t vocab_size, bool on_cpu) {
  // Of a logit: fp32, the product's bf16, and the gradient's.
  constexpr int64_t kBytesPerLogit = 8;
  constexpr int64_t kLeastRows = 32;
  return std::max(kLeastRows, HeadChunkBytes(on_cpu) / (vocab_size * kBytesPerLogit));
}

}  // namespace freshet

#endif  // FRESHET_MODEL_HEAD_CHUNK_H_
