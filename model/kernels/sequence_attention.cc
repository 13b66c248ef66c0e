#include "model/kernels/sequence_attention.h"

#include <algorithm>
#include <cmath>

#include "model/kernels/target_region.h"
#include "model/kernels/vector_math.h"

namespace freshet {
namespace {

constexpr int64_t kPad = 16;    // floats; rows of scratch are padded to a multiple
constexpr int64_t kBlock = 32;  // queries that are computed at a time
constexpr float kLowest = -3.0e38F;

constexpr int64_t Padded(int64_t size) { return (size + kPad - 1) / kPad * kPad; }

// Parts of a vector, one after the other.
class Scratch {
 public:
  explicit Scratch(std::vector<float>& numbers) : numbers_(numbers) {}
  // Zeros. Earlier parts stay valid only if Reserve had room for all.
  float* Take(int64_t size) {
    float* part = numbers_.data() + used_;
    std::fill_n(part, size, 0.0F);
    used_ += size;
    return part;
  }
  void Reserve(int64_t size) {
    if (static_cast<int64_t>(numbers_.size()) < size) numbers_.resize(static_cast<size_t>(size));
  }

 private:
  std::vector<float>& numbers_;
  int64_t used_ = 0;
};

// Keys or values of one head of a sequence: first the prefix's, then its own.
struct HeadRows {
  const float* data;
  int64_t stride;
  const AttentionSequence& sequence;

  int64_t size() const { return sequence.prefix + sequence.size; }
  int64_t token(int64_t i) const {
    return i < sequence.prefix ? sequence.prefix_begin + i : sequence.begin + i - sequence.prefix;
  }
  const float* row(int64_t i) const { return data + token(i) * stride; }
};

// [rows][Padded(dim)]
void CopyRows(const HeadRows& rows, int64_t dim, float* to) {
  for (int64_t i = 0; i < rows.size(); ++i) std::copy_n(rows.row(i), dim, to + i * Padded(dim));
}

// [dim][Padded(rows)]
void CopyTransposed(const HeadRows& rows, int64_t dim, float* to) {
  const int64_t stride = Padded(rows.size());
  for (int64_t i = 0; i < rows.size(); ++i) {
    const float* row = rows.row(i);
    for (int64_t d = 0; d < dim; ++d) to[d * stride + i] = row[d];
  }
}

// The keys that a block of queries may see: [first, first + count), of which the kernels read
// `padded`; the block's first query is key number `self`.
struct KeyRange {
  int64_t first, count, padded, self, window;

  KeyRange(const AttentionSequence& sequence, int64_t query, int64_t queries)
      : self(sequence.prefix + query), window(sequence.window) {
    first = window > 0 ? std::max<int64_t>(0, self - window + 1) / kPad * kPad : 0;
    count = self + queries - first;
    padded = Padded(count);
  }
  // Those of the block's query i, counted from `first`.
  int64_t begin(int64_t i) const {
    return window > 0 ? std::max<int64_t>(0, self + i - window + 1 - first) : 0;
  }
  int64_t end(int64_t i) const { return self + i + 1 - first; }
};

// Hides the scores of keys that a query does not see.
void Hide(const KeyRange& keys, int64_t i, float* scores) {
  std::fill(scores, scores + keys.begin(i), kLowest);
  std::fill(scores + keys.end(i), scores + keys.padded, kLowest);
}

#define FRESHET_VECTOR_BYTES 16
namespace portable {
#include "model/kernels/sequence_attention.inc"
}  // namespace portable
#undef FRESHET_VECTOR_BYTES

#if defined(__x86_64__)
#define FRESHET_VECTOR_BYTES 32
FRESHET_BEGIN_TARGET(FRESHET_AVX2)
namespace avx2 {
#include "model/kernels/sequence_attention.inc"
}  // namespace avx2
FRESHET_END_TARGET
#undef FRESHET_VECTOR_BYTES

#define FRESHET_VECTOR_BYTES 64
FRESHET_BEGIN_TARGET(FRESHET_AVX512)
namespace avx512 {
#include "model/kernels/sequence_attention.inc"
}  // namespace avx512
FRESHET_END_TARGET
#undef FRESHET_VECTOR_BYTES
#endif

struct Kernels {
  decltype(&portable::Attend) attend;
  decltype(&portable::Differentiate) differentiate;
};

Kernels ChooseKernels() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return {avx512::Attend, avx512::Differentiate};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {avx2::Attend, avx2::Differentiate};
  }
#endif
  return {portable::Attend, portable::Differentiate};
}

const Kernels& ThisCpusKernels() {
  static const Kernels kernels = ChooseKernels();
  return kernels;
}

}  // namespace

void AttendSequence(const AttentionInputs& in, const AttentionSequence& sequence,
                    const AttentionOutputs& out, std::vector<float>& scratch) {
  const int64_t keys = Padded(sequence.prefix + sequence.size);
  const int64_t dim = Padded(in.dim);
  Scratch room(scratch);
  room.Reserve(2 * keys * dim + kBlock * (2 * dim + keys + kPad));
  ThisCpusKernels().attend(in, sequence, out, room);
}

void AttendSequenceGradient(const AttentionInputs& in, const AttentionSequence& sequence,
                            const AttentionOutputs& out, const AttentionGradients& gradients,
                            std::vector<float>& scratch) {
  const int64_t keys = Padded(sequence.prefix + sequence.size);
  const int64_t dim = Padded(in.dim);
  Scratch room(scratch);
  room.Reserve(5 * keys * dim + kBlock * (3 * dim + 2 * (keys + kPad)));
  ThisCpusKernels().differentiate(in, sequence, out, gradients, room);
}

}  // namespace freshet
