#include <algorithm>
#include <cstring>

#include "rollout/engine/kernels/multiply_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace freshet {
namespace {

#define FRESHET_VECTOR_BYTES 16
namespace portable {
#include "rollout/engine/kernels/multiply_tile.inc"
}  // namespace portable
#undef FRESHET_VECTOR_BYTES

#if defined(__x86_64__)
#define FRESHET_VECTOR_BYTES 32
FRESHET_BEGIN_TARGET(FRESHET_AVX2)
namespace avx2 {
#include "rollout/engine/kernels/multiply_tile.inc"
}  // namespace avx2
FRESHET_END_TARGET
#undef FRESHET_VECTOR_BYTES

#define FRESHET_VECTOR_BYTES 64
FRESHET_BEGIN_TARGET(FRESHET_AVX512)
namespace avx512 {
#include "rollout/engine/kernels/multiply_tile.inc"
}  // namespace avx512
FRESHET_END_TARGET

#define FRESHET_KERNELS_VNNI
FRESHET_BEGIN_TARGET(FRESHET_AVX512 ",avx512vnni")
namespace avx512_vnni {
#include "rollout/engine/kernels/multiply_tile.inc"
}  // namespace avx512_vnni
FRESHET_END_TARGET
#undef FRESHET_KERNELS_VNNI

#define FRESHET_KERNELS_BF16
FRESHET_BEGIN_TARGET(FRESHET_AVX512 ",avx512bf16")
namespace avx512_bf16 {
#include "rollout/engine/kernels/multiply_tile.inc"
}  // namespace avx512_bf16
FRESHET_END_TARGET
#endif

PanelsFn Choose(MatrixFormat format, CpuKernels kernels) {
  const bool fp32 = format == MatrixFormat::kFloat32;
  if (kernels == CpuKernels::kAmx && !fp32) return AmxPanels(format);
  if (format == MatrixFormat::kInt8) {
#if defined(__x86_64__)
    if (kernels >= CpuKernels::kAvx512 && __builtin_cpu_supports("avx512vnni")) {
      return avx512_vnni::RunPanels<avx512_vnni::BlockInt8<avx512_vnni::VnniDot>, 6>;
    }
    if (kernels >= CpuKernels::kAvx2) {
      return avx2::RunWidePanels<avx2::BlockInt8<avx2::PlainDot>, 3>;
    }
#endif
    return portable::RunPanels<portable::BlockInt8<portable::PlainDot>, 1>;
  }
#if defined(__x86_64__)
  if (kernels == CpuKernels::kAvx512Bf16 && !fp32) {
    return avx512_bf16::RunPanels<avx512_bf16::PairedBfloat16, 12>;
  }
  if (kernels >= CpuKernels::kAvx512) {
    return fp32 ? avx512::RunPanels<avx512::Float32, 12>
                : avx512::RunWidePanels<avx512::WidenedBfloat16, 12>;
  }
  if (kernels == CpuKernels::kAvx2) {
    return fp32 ? avx2::RunPanels<avx2::Float32, 3> : avx2::RunWidePanels<avx2::WidenedBfloat16, 3>;
  }
#endif
  return fp32 ? portable::RunPanels<portable::Float32, 1>
              : portable::RunPanels<portable::WidenedBfloat16, 1>;
}

}  // namespace

void Multiply(const Activations& x, int64_t count, const PackedMatrix& matrix,
              const ProductOutput& out, CpuKernels kernels, ThreadPool& pool) {
  if (count == 0) return;
  const PanelsFn run = Choose(matrix.format(), kernels);
  const Operands operands{
      x.row(0),      x.stride(), matrix.panel(0), matrix.panel_bytes(), matrix.columns(),
      matrix.rows(), out};
  // A few tasks per thread limit the wait for a delayed thread.
  const int64_t most = std::max<int64_t>(1, matrix.panels() / (int64_t{4} * pool.threads()));
  const int64_t panels = pool.threads() == 1 ? matrix.panels() : std::min<int64_t>(most, 4);
  const int64_t tasks = (matrix.panels() + panels - 1) / panels;
  pool.For(tasks, [&](int64_t task, int) {
    run(operands, count, task * panels, std::min(matrix.panels(), (task + 1) * panels));
  });
}

}  // namespace freshet
