#ifndef FRESHET_ROLLOUT_ENGINE_KERNELS_MULTIPLY_KERNELS_H_
#define FRESHET_ROLLOUT_ENGINE_KERNELS_MULTIPLY_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "model/kernels/target_region.h"
#include "rollout/engine/kernels/matrix.h"

// What the files with product kernels share.

namespace freshet {

using AliasedFloat = float __attribute__((may_alias));

// A product, as plain numbers.
struct Operands {
  const std::byte* x;
  int64_t x_stride;  // bytes
  const std::byte* w;
  int64_t panel_bytes;
  int64_t columns;
  int64_t rows;  // of the matrix
  ProductOutput out;
};

// A tile's operands. `x` points to its first row, `w` to its first panel.
struct Tile {
  const std::byte* x;
  int64_t x_stride;  // bytes
  const std::byte* w;
  int64_t panel_bytes;
  int64_t columns;
};

// Multiplies the first `count` rows of x with the panels [panel, end) of the matrix.
using PanelsFn = void (*)(const Operands&, int64_t count, int64_t panel, int64_t end);

// The kernels with AMX tiles, for bf16 or int8. Null where this build has none.
PanelsFn AmxPanels(MatrixFormat format);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_KERNELS_MULTIPLY_KERNELS_H_
