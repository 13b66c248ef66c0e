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

// Logits are held for some rows and the whole vocabulary, or for all rows and some of the
// vocabulary. With `others` logits in the other dimension: how many of these are held at a time,
// HeadChunkBytes of them, or 32. Pure.
inline int64_t HeadChunkSize(int64_t others, bool on_cpu) {
  // Of a logit: fp32, the product's bf16, and an exponential.
  constexpr int64_t kBytesPerLogit = 10;
  constexpr int64_t kLeast = 32;
  return std::max(kLeast, HeadChunkBytes(on_cpu) / (others * kBytesPerLogit));
}

}  // namespace freshet

#endif  // FRESHET_MODEL_HEAD_CHUNK_H_
