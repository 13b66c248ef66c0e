#ifndef FRESHET_MODEL_KERNELS_TARGET_REGION_H_
#define FRESHET_MODEL_KERNELS_TARGET_REGION_H_

// Code between FRESHET_BEGIN_TARGET(features) and FRESHET_END_TARGET is compiled for a CPU with
// these features. Define only functions with internal linkage there: an inline function or template
// with external linkage could replace the same function of other files at link time, which then
// would run on any CPU.

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

#define FRESHET_AVX2 "avx2,fma"
#define FRESHET_AVX512 "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"

#endif  // FRESHET_MODEL_KERNELS_TARGET_REGION_H_
