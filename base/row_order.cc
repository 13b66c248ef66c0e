#include "base/row_order.h"

#include "base/log.h"
#include "base/permutation.h"
#include "base/random.h"

namespace freshet {

int64_t RowOfOrdinal(uint64_t seed, int64_t size, int64_t ordinal, bool shuffle) {
  FRESHET_CHECK(size >= 1 && ordinal >= 0);
  const int64_t pass = ordinal / size;
  const int64_t index = ordinal % size;
  if (!shuffle) return index;
  return Permute(RandomBits(seed, static_cast<uint64_t>(pass)), size, index);
}

}  // namespace freshet
