#ifndef FRESHET_MODEL_CUDA_NUMBERS_CUH_
#define FRESHET_MODEL_CUDA_NUMBERS_CUH_

#include <cuda_bf16.h>

#include <cstdint>

namespace freshet {

using Bf16 = __nv_bfloat16;

__device__ inline float ToFloat(float x) { return x; }
__device__ inline float ToFloat(Bf16 x) { return __bfloat162float(x); }
template <typename T>
__device__ T FromFloat(float x);
template <>
__device__ inline float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ inline Bf16 FromFloat<Bf16>(float x) {
  return __float2bfloat16_rn(x);
}

// N numbers that are loaded and stored together.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};

// Sums over a warp; every lane gets the result.
__device__ inline float WarpSum(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffU, x, lanes);
  return x;
}
__device__ inline float WarpMax(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, lanes));
  }
  return x;
}

// The sum over a block of at most 1024 threads, in every thread. All threads call it.
__device__ inline float BlockSum(float x) {
  __shared__ float parts[32];
  x = WarpSum(x);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  const int warps = (blockDim.x + 31) / 32;
  x = WarpSum(threadIdx.x % 32 < warps ? parts[threadIdx.x % 32] : 0.0F);
  __syncthreads();
  return x;
}

// Calls `run` with a null pointer of the type that `bf16` selects.
template <typename Run>
int WithType(int bf16, const Run& run) {
  return bf16 != 0 ? run(static_cast<Bf16*>(nullptr)) : run(static_cast<float*>(nullptr));
}

inline unsigned int Blocks(int64_t work, int64_t per_block, int64_t most = 1 << 16) {
  const int64_t blocks = (work + per_block - 1) / per_block;
  return static_cast<unsigned int>(blocks < most ? blocks : most);
}

}  // namespace freshet

#endif  // FRESHET_MODEL_CUDA_NUMBERS_CUH_
