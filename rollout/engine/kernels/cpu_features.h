#ifndef FRESHET_ROLLOUT_ENGINE_KERNELS_CPU_FEATURES_H_
#define FRESHET_ROLLOUT_ENGINE_KERNELS_CPU_FEATURES_H_

namespace freshet {

// Instruction sets that the kernels have code for, each including the ones before it.
enum class CpuKernels {
  kPortable,    // what the compiler makes of plain loops
  kAvx2,        // with FMA
  kAvx512,      // F, BW, DQ and VL
  kAvx512Bf16,  // dot products of bf16 pairs
  kAmx,         // tiles of bf16 and int8
};

// The largest set that this CPU supports and the kernel permits. The first call asks Linux for the
// permission to use AMX, which holds for the process.
CpuKernels BestCpuKernels();
// "portable", "avx2", "avx512", "avx512_bf16", "amx".
const char* CpuKernelsName(CpuKernels kernels);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_KERNELS_CPU_FEATURES_H_
