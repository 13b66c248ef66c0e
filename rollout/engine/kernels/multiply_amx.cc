#include <algorithm>
#include <cstring>

#include "rollout/engine/kernels/multiply_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace freshet {
namespace {

#define FRESHET_VECTOR_BYTES 64
FRESHET_BEGIN_TARGET(FRESHET_AVX512 ",amx-tile,amx-bf16,amx-int8")
namespace amx {
#include "rollout/engine/kernels/multiply_tile.inc"
// Uses what multiply_tile.inc declares.
#include "rollout/engine/kernels/multiply_amx.inc"
}  // namespace amx
FRESHET_END_TARGET
#undef FRESHET_VECTOR_BYTES

}  // namespace

PanelsFn AmxPanels(MatrixFormat format) {
  return format == MatrixFormat::kInt8 ? amx::RunTilePanels<amx::Int8Tiles>
                                       : amx::RunTilePanels<amx::Bfloat16Tiles>;
}

}  // namespace freshet

#else

namespace freshet {

PanelsFn AmxPanels(MatrixFormat) { return nullptr; }

}  // namespace freshet

#endif
