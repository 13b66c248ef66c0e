#include "base/permutation.h"

#include "base/log.h"
#include "base/random.h"

namespace freshet {
namespace {

// Four rounds give a strong pseudo-random permutation for large halves. Small halves, down to one
// bit, need more.
constexpr uint64_t kRounds = 8;

}  // namespace

int64_t Permute(uint64_t key, int64_t size, int64_t index) {
  FRESHET_CHECK(index >= 0 && index < size && size <= int64_t{1} << 62);
  const uint64_t bound = static_cast<uint64_t>(size);
  int half_bits = 1;
  while ((uint64_t{1} << (2 * half_bits)) < bound) ++half_bits;
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half_bits;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (RandomBits(key, round, right) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= bound);
  return static_cast<int64_t>(value);
}

}  // namespace freshet
