#include "rollout/engine/kernels/cpu_features.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace freshet {
namespace {

#if defined(__x86_64__)
// Whether the CPU has AMX with bf16 and int8, and Linux lets this process use the tiles.
bool RequestAmx() {
  constexpr unsigned kFeatures = 1U << 22U | 1U << 24U | 1U << 25U;  // amx-bf16, -tile, -int8
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if ((edx & kFeatures) != kFeatures) return false;
  // asm/prctl.h of older distributions lacks these.
  constexpr int64_t kGetPermission = 0x1022;
  constexpr int64_t kRequestPermission = 0x1023;
  constexpr int64_t kTileData = 18;
  constexpr uint64_t kTiles = uint64_t{3} << 17U;  // configuration and data
  uint64_t permitted = 0;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 &&
         syscall(SYS_arch_prctl, kGetPermission, &permitted) == 0 && (permitted & kTiles) == kTiles;
}
#endif

CpuKernels Detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) {
    const bool int8 = __builtin_cpu_supports("avx512vnni");
    return int8 && RequestAmx() ? CpuKernels::kAmx : CpuKernels::kAvx512Bf16;
  }
  if (avx512) return CpuKernels::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return CpuKernels::kAvx2;
#endif
  return CpuKernels::kPortable;
}

}  // namespace

CpuKernels BestCpuKernels() {
  static const CpuKernels best = Detect();
  return best;
}

const char* CpuKernelsName(CpuKernels kernels) {
  switch (kernels) {
    case CpuKernels::kAmx:
      return "amx";
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
