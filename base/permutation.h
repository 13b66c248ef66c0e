#ifndef FRESHET_BASE_PERMUTATION_H_
#define FRESHET_BASE_PERMUTATION_H_

#include <cstdint>

namespace freshet {

// Image of `index` under a pseudo-random permutation of [0, size) chosen by `key`. O(1) memory and
// O(1) average time: a balanced Feistel network over the next power of four (Luby, Rackoff, 1988),
// with cycle walking back into range (Black, Rogaway, 2002), under four steps on average.
// Requires 0 <= index < size <= 2^62.
int64_t Permute(uint64_t key, int64_t size, int64_t index);

}  // namespace freshet

#endif  // FRESHET_BASE_PERMUTATION_H_
