#ifndef FRESHET_MODEL_KERNELS_VECTOR_MATH_H_
#define FRESHET_MODEL_KERNELS_VECTOR_MATH_H_

#include <bit>
#include <cstdint>

// Compiles a function of plain loops for several instruction sets; the best one is selected at load
// time. Disabled under sanitizers, whose run-time is not initialized when the selection runs.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FRESHET_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FRESHET_SANITIZED 1
#endif
#if defined(__x86_64__) && !defined(FRESHET_SANITIZED)
#define FRESHET_MULTIARCH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FRESHET_MULTIARCH
#endif

#define FRESHET_ALWAYS_INLINE __attribute__((always_inline)) inline
#define FRESHET_ALWAYS_INLINE_LAMBDA __attribute__((always_inline))

namespace freshet {

constexpr int64_t kFloatLanes = 16;  // sums that loops compute side by side

// e^x for x <= 0 without branches, so that loops vectorize: 2^n * 2^f with a degree-6 polynomial
// for 2^f on [-0.5, 0.5]. Relative error below 2e-7. Underflows to 0 below -87.
FRESHET_ALWAYS_INLINE float ExpNonPositive(float x) {
  const float bounded = x < 0.0F ? x : 0.0F;  // for NaN and infinity
  const float clamped = bounded < -87.0F ? -87.0F : bounded;
  const float scaled = clamped * 1.44269504088896341F;
  const float rounded = (scaled + 12582912.0F) - 12582912.0F;  // rounds: 1.5 * 2^23
  const float f = scaled - rounded;
  float p = 1.54035304e-4F;
  p = p * f + 1.33335581e-3F;
  p = p * f + 9.61812911e-3F;
  p = p * f + 5.55041087e-2F;
  p = p * f + 2.40226507e-1F;
  p = p * f + 6.93147181e-1F;
  p = p * f + 1.0F;
  const int32_t exponent = (static_cast<int32_t>(rounded) + 127) << 23;
  const float result = p * std::bit_cast<float>(exponent);
  return x < -87.0F ? 0.0F : result;
}

}  // namespace freshet

#endif  // FRESHET_MODEL_KERNELS_VECTOR_MATH_H_
