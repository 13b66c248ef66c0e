#include <cuda_runtime.h>

#include <type_traits>

#include "model/cuda/interface.h"
#include "model/cuda/numbers.cuh"

namespace freshet {
namespace {

constexpr int kThreads = 256;

__device__ float Sigmoid(float x) { return 1.0F / (1.0F + __expf(-x)); }

template <typename T, int N>
__global__ void SwiGlu(const T* gate_up, T* out, int64_t rows, int64_t inner) {
  const int64_t packs = inner / N;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < rows * packs;
       i += stride) {
    const int64_t row = i / packs;
    const int64_t column = (i - row * packs) * N;
    const T* from = gate_up + row * 2 * inner + column;
    const auto gate = *reinterpret_cast<const Pack<T, N>*>(from);
    const auto up = *reinterpret_cast<const Pack<T, N>*>(from + inner);
    Pack<T, N> result;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float g = ToFloat(gate.values[n]);
      result.values[n] = FromFloat<T>(g * Sigmoid(g) * ToFloat(up.values[n]));
    }
    *reinterpret_cast<Pack<T, N>*>(out + row * inner + column) = result;
  }
}

template <typename T, int N>
__global__ void SwiGluGradient(const T* gate_up, const T* d, T* d_gate_up, int64_t rows,
                               int64_t inner) {
  const int64_t packs = inner / N;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < rows * packs;
       i += stride) {
    const int64_t row = i / packs;
    const int64_t column = (i - row * packs) * N;
    const int64_t place = row * 2 * inner + column;
    const auto gate = *reinterpret_cast<const Pack<T, N>*>(gate_up + place);
    const auto up = *reinterpret_cast<const Pack<T, N>*>(gate_up + place + inner);
    const auto change = *reinterpret_cast<const Pack<T, N>*>(d + row * inner + column);
    Pack<T, N> d_gate;
    Pack<T, N> d_up;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float g = ToFloat(gate.values[n]);
      const float s = Sigmoid(g);
      const float c = ToFloat(change.values[n]);
      d_up.values[n] = FromFloat<T>(c * g * s);
      d_gate.values[n] = FromFloat<T>(c * ToFloat(up.values[n]) * s * (1.0F + g * (1.0F - s)));
    }
    *reinterpret_cast<Pack<T, N>*>(d_gate_up + place) = d_gate;
    *reinterpret_cast<Pack<T, N>*>(d_gate_up + place + inner) = d_up;
  }
}

// One block per row.
template <typename T>
__global__ void RmsNorm(float* x, const T* delta, const float* weight, T* out, float* inverses,
                        int64_t width, float epsilon) {
  const int64_t row = blockIdx.x;
  x += row * width;
  float sum = 0;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    float value = x[i];
    if (delta != nullptr) {
      value += ToFloat(delta[row * width + i]);
      x[i] = value;
    }
    sum += value * value;
  }
  const float inverse = rsqrtf(BlockSum(sum) / static_cast<float>(width) + epsilon);
  if (inverses != nullptr && threadIdx.x == 0) inverses[row] = inverse;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    out[row * width + i] = FromFloat<T>(x[i] * inverse * weight[i]);
  }
}

// Each block takes every gridDim.x-th row. A thread owns the columns that it visits.
template <typename T>
__global__ void RmsNormGradient(const float* x, const float* weight, const float* inverses,
                                const T* d, float* d_x, float* d_weight_parts, int64_t rows,
                                int64_t width) {
  extern __shared__ float d_weight[];
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) d_weight[i] = 0;
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* x_row = x + row * width;
    const T* d_row = d + row * width;
    const float inverse = inverses[row];
    float dot = 0;
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      const float change = ToFloat(d_row[i]);
      dot += change * weight[i] * x_row[i];
      d_weight[i] += change * x_row[i] * inverse;
    }
    const float mean = BlockSum(dot) * inverse * inverse / static_cast<float>(width);
    for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
      d_x[row * width + i] = inverse * (ToFloat(d_row[i]) * weight[i] - x_row[i] * mean);
    }
  }
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    d_weight_parts[blockIdx.x * width + i] = d_weight[i];
  }
}

template <typename T>
__global__ void Rope(const T* in, int64_t row_stride, const float* cos, const float* sin,
                     const int64_t* positions, T* out, int64_t rows, int64_t heads, int64_t half,
                     bool back) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
       i < rows * heads * half; i += stride) {
    const int64_t row = i / (heads * half);
    const int64_t rest = i - row * heads * half;
    const int64_t head = rest / half;
    const int64_t pair = rest - head * half;
    const T* from = in + row * row_stride + head * 2 * half + pair;
    T* to = out + (row * heads + head) * 2 * half + pair;
    const float c = cos[positions[row] * half + pair];
    const float s = back ? -sin[positions[row] * half + pair] : sin[positions[row] * half + pair];
    const float a = ToFloat(from[0]);
    const float b = ToFloat(from[half]);
    to[0] = FromFloat<T>(a * c - b * s);
    to[half] = FromFloat<T>(b * c + a * s);
  }
}

template <typename T>
__global__ void GatherSum(const T* in, const int32_t* starts, const int32_t* places, T* out,
                          int64_t rows, int64_t width) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < rows * width;
       i += stride) {
    const int64_t row = i / width;
    const int64_t column = i - row * width;
    float sum = 0;
    for (int32_t p = starts[row]; p < starts[row + 1]; ++p) {
      sum += ToFloat(in[places[p] * width + column]);
    }
    out[i] = FromFloat<T>(sum);
  }
}

// Whether rows of these widths can be taken 8 numbers at a time.
bool Packs(int64_t width, const void* a, const void* b, const void* c, size_t bytes) {
  const auto aligned = [bytes](const void* pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % (8 * bytes) == 0;
  };
  return width % 8 == 0 && aligned(a) && aligned(b) && aligned(c);
}

}  // namespace
}  // namespace freshet

using freshet::Blocks;
using freshet::kThreads;
using freshet::WithType;

int freshet_cuda_version(void) { return FRESHET_CUDA_VERSION; }

const char* freshet_cuda_error(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

int freshet_swiglu(const void* gate_up, void* out, int64_t rows, int64_t inner, int bf16,
                   void* stream) {
  if (rows == 0 || inner == 0) return cudaSuccess;
  return WithType(bf16, [&]<typename T>(T*) {
    const auto* from = static_cast<const T*>(gate_up);
    auto* to = static_cast<T*>(out);
    const auto s = static_cast<cudaStream_t>(stream);
    if (freshet::Packs(inner, gate_up, out, nullptr, sizeof(T))) {
      freshet::SwiGlu<T, 8><<<Blocks(rows * inner / 8, kThreads), kThreads, 0, s>>>(from, to, rows,
                                                                                    inner);
    } else {
      freshet::SwiGlu<T, 1><<<Blocks(rows * inner, kThreads), kThreads, 0, s>>>(from, to, rows,
                                                                                inner);
    }
    return static_cast<int>(cudaGetLastError());
  });
}

int freshet_swiglu_gradient(const void* gate_up, const void* d, void* d_gate_up, int64_t rows,
                            int64_t inner, int bf16, void* stream) {
  if (rows == 0 || inner == 0) return cudaSuccess;
  return WithType(bf16, [&]<typename T>(T*) {
    const auto* from = static_cast<const T*>(gate_up);
    const auto* change = static_cast<const T*>(d);
    auto* to = static_cast<T*>(d_gate_up);
    const auto s = static_cast<cudaStream_t>(stream);
    if (freshet::Packs(inner, gate_up, d, d_gate_up, sizeof(T))) {
      freshet::SwiGluGradient<T, 8><<<Blocks(rows * inner / 8, kThreads), kThreads, 0, s>>>(
          from, change, to, rows, inner);
    } else {
      freshet::SwiGluGradient<T, 1><<<Blocks(rows * inner, kThreads), kThreads, 0, s>>>(
          from, change, to, rows, inner);
    }
    return static_cast<int>(cudaGetLastError());
  });
}

int freshet_rms_norm(float* x, const void* delta, const float* weight, void* out, float* inverses,
                     int64_t rows, int64_t width, float epsilon, int bf16, void* stream) {
  if (rows == 0 || width == 0) return cudaSuccess;
  return WithType(bf16, [&]<typename T>(T*) {
    freshet::RmsNorm<T><<<static_cast<unsigned int>(rows), kThreads, 0,
                          static_cast<cudaStream_t>(stream)>>>(
        x, static_cast<const T*>(delta), weight, static_cast<T*>(out), inverses, width, epsilon);
    return static_cast<int>(cudaGetLastError());
  });
}

int freshet_rms_norm_gradient(const float* x, const float* weight, const float* inverses,
                              const void* d, float* d_x, float* d_weight_parts, int64_t rows,
                              int64_t width, int bf16, void* stream) {
  if (width == 0) return cudaSuccess;
  if (width > FRESHET_RMS_MOST) return cudaErrorInvalidValue;
  return WithType(bf16, [&]<typename T>(T*) {
    const size_t shared = static_cast<size_t>(width) * sizeof(float);
    freshet::RmsNormGradient<T><<<FRESHET_RMS_PARTS, kThreads, shared,
                                  static_cast<cudaStream_t>(stream)>>>(
        x, weight, inverses, static_cast<const T*>(d), d_x, d_weight_parts, rows, width);
    return static_cast<int>(cudaGetLastError());
  });
}

int freshet_rope(const void* in, int64_t row_stride, const float* cos, const float* sin,
                 const int64_t* positions, void* out, int64_t rows, int64_t heads, int64_t half,
                 int back, int bf16, void* stream) {
  if (rows == 0 || heads == 0 || half == 0) return cudaSuccess;
  return WithType(bf16, [&]<typename T>(T*) {
    freshet::Rope<T><<<Blocks(rows * heads * half, kThreads), kThreads, 0,
                       static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(in), row_stride, cos, sin, positions, static_cast<T*>(out), rows,
        heads, half, back != 0);
    return static_cast<int>(cudaGetLastError());
  });
}

int freshet_gather_sum(const void* in, const int32_t* starts, const int32_t* places, void* out,
                       int64_t rows, int64_t width, int bf16, void* stream) {
  if (rows == 0 || width == 0) return cudaSuccess;
  return WithType(bf16, [&]<typename T>(T*) {
    freshet::GatherSum<T><<<Blocks(rows * width, kThreads), kThreads, 0,
                            static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(in), starts, places, static_cast<T*>(out), rows, width);
    return static_cast<int>(cudaGetLastError());
  });
}

int freshet_graph_begin(void* stream) {
  const cudaError_t error = cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) (void)cudaGetLastError();  // the next call must not report it
  return error;
}

int freshet_graph_end(void* stream, void** graph) {
  *graph = nullptr;
  cudaGraph_t recorded = nullptr;
  cudaError_t error = cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &recorded);
  cudaGraphExec_t executable = nullptr;
  if (error == cudaSuccess) error = cudaGraphInstantiate(&executable, recorded, 0);
  if (recorded != nullptr) cudaGraphDestroy(recorded);
  if (error == cudaSuccess) *graph = executable;
  if (error != cudaSuccess) (void)cudaGetLastError();  // the next call must not report it
  return error;
}

int freshet_graph_launch(void* graph, void* stream) {
  return cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream));
}

void freshet_graph_destroy(void* graph) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); }

int freshet_upload(void* to, const void* from, int64_t bytes, void* stream) {
  return cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                         static_cast<cudaStream_t>(stream));
}
