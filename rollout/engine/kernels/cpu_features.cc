#include "rollout/engine/kernels/cpu_features.h"

namespace freshet {

CpuKernels BestCpuKernels() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) return CpuKernels::kAvx512Bf16;
  if (avx512) return CpuKernels::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return CpuKernels::kAvx2;
#endif
  return CpuKernels::kPortable;
}

const char* CpuKernelsName(CpuKernels kernels) {
  switch (kernels) {
    case CpuKernels::kAvx512Bf16:
      return "avx512_bf16";
    case CpuKernels::kAvx512:
      return "avx512";
    case CpuKernels::kAvx2:
      return "avx2";
    case CpuKernels::kPortable:
      return "portable";
  }
  return "portable";
}

}  // namespace freshet
