#ifndef FRESHET_BASE_ROW_ORDER_H_
#define FRESHET_BASE_ROW_ORDER_H_

#include <cstdint>

namespace freshet {

// Dataset row of an ordinal. Pass p = ordinal / size visits all `size` rows once, in an order drawn
// from (seed, p), or in dataset order if `shuffle` is false. A pure function, so a resume needs
// only the ordinal. Requires size >= 1 and ordinal >= 0.
int64_t RowOfOrdinal(uint64_t seed, int64_t size, int64_t ordinal, bool shuffle);

}  // namespace freshet

#endif  // FRESHET_BASE_ROW_ORDER_H_
