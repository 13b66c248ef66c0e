#ifndef FRESHET_ROLLOUT_ENGINE_KERNELS_MULTIPLY_KERNELS_H_
#define FRESHET_ROLLOUT_ENGINE_KERNELS_MULTIPLY_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "rollout/engine/kernels/matrix.h"

// What the files with product kernels share. Kernels call only functions of their own file: an
// inline function that is compiled there for AVX-512 could replace the same function of other files
// at link time.

#define FRESHET_INLINE inline __attribute__((always_inline))
#define FRESHET_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define FRESHET_BEGIN_TARGET(features) \
  FRESHET_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define FRESHET_END_TARGET _Pragma("clang attribute pop")
#else
#define FRESHET_BEGIN_TARGET(features) \
  _Pragma("GCC push_options") FRESHET_PRAGMA(GCC target(features))
#define FRESHET_END_TARGET _Pragma("GCC pop_options")
#endif

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
