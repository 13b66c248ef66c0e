// One decoding step: see interface.h. Attention splits the keys of a sequence over several blocks and
// merges their results (Flash-Decoding, Dao et al. 2023).
#include <cuda_runtime.h>

#include "model/cuda/interface.h"
#include "model/cuda/numbers.cuh"

namespace freshet {
namespace {

constexpr int kThreads = 128;  // of an attention block
constexpr int kTile = kThreads;  // keys that a block computes at once, one per thread

// The parts of `inputs`.
struct Inputs {
  const int32_t* data;
  int64_t rows;

  __device__ int32_t token(int64_t row) const { return data[1 + row]; }
  __device__ int32_t position(int64_t row) const { return data[1 + rows + row]; }
  __device__ int32_t slot(int64_t row) const { return data[1 + 2 * rows + row]; }
  __device__ int32_t num_keys(int64_t row) const { return data[1 + 3 * rows + row]; }
  __device__ const int32_t* blocks(int64_t row) const { return data + 1 + 4 * rows + row * data[0]; }
};

template <typename T>
__global__ void Embed(Inputs inputs, const T* embedding, float* x, int64_t hidden) {
  const int64_t row = blockIdx.x;
  const bool used = inputs.num_keys(row) > 0;
  const int64_t token = used ? inputs.token(row) : 0;
  for (int64_t i = threadIdx.x; i < hidden; i += blockDim.x) {
    x[row * hidden + i] = ToFloat(embedding[token * hidden + i]);
  }
}

struct RopeArguments {
  const float* bias;
  const float* q_norm;
  const float* k_norm;
  const float* cos;
  const float* sin;
  int64_t heads, kv_heads, dim;
  float epsilon;
};

// A block per row and head; a thread per pair of numbers.
template <typename T>
__global__ void RotateAndStore(Inputs inputs, RopeArguments a, const T* qkv, T* q, T* keys,
                               T* values) {
  const int64_t row = blockIdx.x;
  const int64_t head = blockIdx.y;
  if (inputs.num_keys(row) == 0) return;  // it would write over another row's slot
  const int64_t half = a.dim / 2;
  const int64_t pair = threadIdx.x;
  const bool there = pair < half;
  const int64_t all = a.heads + 2 * a.kv_heads;
  const T* from = qkv + (row * all + head) * a.dim;
  float first = there ? ToFloat(from[pair]) : 0.0F;
  float second = there ? ToFloat(from[pair + half]) : 0.0F;
  if (a.bias != nullptr && there) {
    first += a.bias[head * a.dim + pair];
    second += a.bias[head * a.dim + pair + half];
  }
  const bool is_query = head < a.heads;
  const bool is_value = head >= a.heads + a.kv_heads;
  const float* norm = is_query ? a.q_norm : is_value ? nullptr : a.k_norm;
  if (norm != nullptr) {
    const float sum = BlockSum(first * first + second * second);
    const float inverse = rsqrtf(sum / static_cast<float>(a.dim) + a.epsilon);
    if (there) {
      first *= inverse * norm[pair];
      second *= inverse * norm[pair + half];
    }
  }
  if (!there) return;
  if (!is_value) {
    const int64_t angle = inputs.position(row) * half + pair;
    const float rotated = first * a.cos[angle] - second * a.sin[angle];
    second = second * a.cos[angle] + first * a.sin[angle];
    first = rotated;
  }
  T* to;
  if (is_query) {
    to = q + (row * a.heads + head) * a.dim;
  } else {
    const int64_t kv_head = is_value ? head - a.heads - a.kv_heads : head - a.heads;
    to = (is_value ? values : keys) + (inputs.slot(row) * a.kv_heads + kv_head) * a.dim;
  }
  to[pair] = FromFloat<T>(first);
  to[pair + half] = FromFloat<T>(second);
}

// Keys [begin, end) of a row that a split computes. Pure.
struct KeyRange {
  int64_t begin, end;
};
__device__ KeyRange RangeOf(int64_t num_keys, int64_t window, int64_t split, int64_t splits) {
  const int64_t first = window > 0 && num_keys > window ? num_keys - window : 0;
  const int64_t count = num_keys - first;
  const int64_t each = (count + splits - 1) / splits;
  const int64_t begin = first + split * each;
  const int64_t end = begin + each < num_keys ? begin + each : num_keys;
  return {begin < end ? begin : end, end};
}

struct AttentionArguments {
  int64_t kv_heads, block_tokens, window;
  float scale;
};

// A block per row, key head and split. G queries share the keys; each thread scores one key of a
// tile for all of them. Then the threads of a group of kTile * D / 2 / kThreads keys each add up the
// values of their pair of dimensions.
// Writes the unnormalized sum of values, the largest score, and the sum of weights.
template <typename T, int G, int D>
__global__ void Attend(Inputs inputs, AttentionArguments a, const T* q, const T* keys,
                       const T* values, float* scratch) {
  constexpr int kVector = 8;  // numbers of a key that are loaded at once
  constexpr int kPairs = D / 2;
  constexpr int kGroups = kThreads / kPairs;
  constexpr int kWarps = kThreads / 32;
  __shared__ float queries[G][D];
  __shared__ float weights[G][kTile];
  __shared__ float largest[G], total[G], correction[G];
  __shared__ int64_t slots[kTile];
  __shared__ float sums[kGroups][G][D];

  const int64_t row = blockIdx.x;
  const int64_t kv_head = blockIdx.y;
  const int64_t split = blockIdx.z;
  const int64_t splits = gridDim.z;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t heads = a.kv_heads * G;
  const KeyRange range = RangeOf(inputs.num_keys(row), a.window, split, splits);
  const int32_t* blocks = inputs.blocks(row);

  for (int i = thread; i < G * D; i += kThreads) {
    queries[i / D][i % D] = ToFloat(q[(row * heads + kv_head * G) * D + i]) * a.scale;
  }
  if (thread < G) {
    largest[thread] = -INFINITY;
    total[thread] = 0;
  }
  float sum[G][2];
#pragma unroll
  for (int g = 0; g < G; ++g) sum[g][0] = sum[g][1] = 0;
  const int group = thread / kPairs;
  const int pair = thread % kPairs;
  __syncthreads();

  for (int64_t tile = range.begin; tile < range.end; tile += kTile) {
    const int count = static_cast<int>(range.end - tile < kTile ? range.end - tile : kTile);
    float score[G];
#pragma unroll
    for (int g = 0; g < G; ++g) score[g] = -INFINITY;
    if (thread < count) {
      const int64_t key = tile + thread;
      const int64_t slot = blocks[key / a.block_tokens] * a.block_tokens + key % a.block_tokens;
      slots[thread] = slot;
      const T* k = keys + (slot * a.kv_heads + kv_head) * D;
#pragma unroll
      for (int g = 0; g < G; ++g) score[g] = 0;
#pragma unroll
      for (int first = 0; first < D; first += kVector) {
        const auto pack = *reinterpret_cast<const Pack<T, kVector>*>(k + first);
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          const float number = ToFloat(pack.values[i]);
#pragma unroll
          for (int g = 0; g < G; ++g) score[g] += number * queries[g][first + i];
        }
      }
    }
#pragma unroll
    for (int g = 0; g < G; ++g) weights[g][thread] = score[g];
    __syncthreads();
    // Softmax weights of the tile, a warp per query.
    for (int g = thread / 32; g < G; g += kWarps) {
      float most = -INFINITY;
      for (int i = thread % 32; i < kTile; i += 32) most = fmaxf(most, weights[g][i]);
      most = fmaxf(WarpMax(most), largest[g]);
      float part = 0;
      for (int i = thread % 32; i < kTile; i += 32) {
        const float weight = __expf(weights[g][i] - most);  // 0 beyond the end
        weights[g][i] = weight;
        part += weight;
      }
      part = WarpSum(part);
      if (thread % 32 == 0) {
        correction[g] = __expf(largest[g] - most);
        total[g] = total[g] * correction[g] + part;
        largest[g] = most;
      }
      __syncwarp();
    }
    __syncthreads();
#pragma unroll
    for (int g = 0; g < G; ++g) {
      sum[g][0] *= correction[g];
      sum[g][1] *= correction[g];
    }
    for (int i = group; i < count; i += kGroups) {
      const auto value = *reinterpret_cast<const Pack<T, 2>*>(
          values + (slots[i] * a.kv_heads + kv_head) * D + 2 * pair);
      const float x = ToFloat(value.values[0]);
      const float y = ToFloat(value.values[1]);
#pragma unroll
      for (int g = 0; g < G; ++g) {
        sum[g][0] += weights[g][i] * x;
        sum[g][1] += weights[g][i] * y;
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int g = 0; g < G; ++g) {
    sums[group][g][2 * pair] = sum[g][0];
    sums[group][g][2 * pair + 1] = sum[g][1];
  }
  __syncthreads();
  for (int i = thread; i < G * D; i += kThreads) {
    const int g = i / D;
    float all = 0;
    for (int part = 0; part < kGroups; ++part) all += sums[part][g][i % D];
    float* to = scratch + ((row * heads + kv_head * G + g) * splits + split) * (D + 2);
    to[i % D] = all;
    if (i % D == 0) {
      to[D] = largest[g];
      to[D + 1] = total[g];
    }
  }
}

// A block per row and head, a thread per dimension.
template <typename T>
__global__ void Merge(const float* scratch, T* out, int64_t dim, int64_t splits) {
  const int64_t head = blockIdx.x;  // of all rows
  const int64_t i = threadIdx.x;
  const float* parts = scratch + head * splits * (dim + 2);
  float most = -INFINITY;
  for (int64_t s = 0; s < splits; ++s) most = fmaxf(most, parts[s * (dim + 2) + dim]);
  float sum = 0;
  float total = 0;
  for (int64_t s = 0; s < splits; ++s) {
    const float* part = parts + s * (dim + 2);
    if (part[dim + 1] == 0) continue;
    const float scale = __expf(part[dim] - most);
    sum += part[i] * scale;
    total += part[dim + 1] * scale;
  }
  out[head * dim + i] = FromFloat<T>(total == 0 ? 0.0F : sum / total);
}

template <typename T, int G, int D>
void Launch(const freshet_decode_shape& shape, const Inputs& inputs, const void* q,
            const void* keys, const void* values, float* scratch, cudaStream_t stream) {
  const AttentionArguments arguments = {shape.kv_heads, shape.block_tokens, shape.window,
                                        rsqrtf(static_cast<float>(D))};
  const dim3 grid(static_cast<unsigned int>(shape.rows), static_cast<unsigned int>(shape.kv_heads),
                  static_cast<unsigned int>(shape.splits));
  Attend<T, G, D><<<grid, kThreads, 0, stream>>>(inputs, arguments, static_cast<const T*>(q),
                                                 static_cast<const T*>(keys),
                                                 static_cast<const T*>(values), scratch);
}

// Calls Launch with the number of queries per key head. Returns whether it is supported.
template <typename T, int D, typename... Arguments>
bool LaunchWithQueries(int64_t queries, const Arguments&... arguments) {
  switch (queries) {
    case 1: Launch<T, 1, D>(arguments...); return true;
    case 2: Launch<T, 2, D>(arguments...); return true;
    case 3: Launch<T, 3, D>(arguments...); return true;
    case 4: Launch<T, 4, D>(arguments...); return true;
    case 5: Launch<T, 5, D>(arguments...); return true;
    case 6: Launch<T, 6, D>(arguments...); return true;
    case 7: Launch<T, 7, D>(arguments...); return true;
    case 8: Launch<T, 8, D>(arguments...); return true;
    default: return false;
  }
}

template <typename T, typename... Arguments>
bool LaunchWithDim(int64_t dim, int64_t queries, const Arguments&... arguments) {
  switch (dim) {
    case 8: return LaunchWithQueries<T, 8>(queries, arguments...);
    case 16: return LaunchWithQueries<T, 16>(queries, arguments...);
    case 32: return LaunchWithQueries<T, 32>(queries, arguments...);
    case 64: return LaunchWithQueries<T, 64>(queries, arguments...);
    case 128: return LaunchWithQueries<T, 128>(queries, arguments...);
    case 256: return LaunchWithQueries<T, 256>(queries, arguments...);
    default: return false;
  }
}

}  // namespace
}  // namespace freshet

using freshet::Inputs;
using freshet::WithType;

int freshet_decode_embed(const struct freshet_decode_shape* shape, const int32_t* inputs,
                         const void* embedding, float* x, void* stream) {
  if (shape->rows == 0) return cudaSuccess;
  return WithType(shape->bf16, [&]<typename T>(T*) {
    freshet::Embed<T><<<static_cast<unsigned int>(shape->rows), freshet::kThreads, 0,
                        static_cast<cudaStream_t>(stream)>>>(
        Inputs{inputs, shape->rows}, static_cast<const T*>(embedding), x, shape->hidden);
    return static_cast<int>(cudaGetLastError());
  });
}

int freshet_decode_rope(const struct freshet_decode_shape* shape, const int32_t* inputs,
                        const void* qkv, const float* bias, const float* q_norm,
                        const float* k_norm, const float* cos, const float* sin, void* q,
                        void* keys, void* values, void* stream) {
  if (shape->rows == 0) return cudaSuccess;
  if (shape->dim % 2 != 0 || shape->dim > FRESHET_DECODE_DIM_MOST) return cudaErrorInvalidValue;
  return WithType(shape->bf16, [&]<typename T>(T*) {
    const freshet::RopeArguments arguments = {bias,         q_norm,          k_norm,
                                              cos,          sin,             shape->heads,
                                              shape->kv_heads, shape->dim,   shape->epsilon};
    const dim3 grid(static_cast<unsigned int>(shape->rows),
                    static_cast<unsigned int>(shape->heads + 2 * shape->kv_heads));
    const auto threads = static_cast<unsigned int>((shape->dim / 2 + 31) / 32 * 32);
    freshet::RotateAndStore<T><<<grid, threads, 0, static_cast<cudaStream_t>(stream)>>>(
        Inputs{inputs, shape->rows}, arguments, static_cast<const T*>(qkv), static_cast<T*>(q),
        static_cast<T*>(keys), static_cast<T*>(values));
    return static_cast<int>(cudaGetLastError());
  });
}

int freshet_decode_attention(const struct freshet_decode_shape* shape, const int32_t* inputs,
                             const void* q, const void* keys, const void* values, float* scratch,
                             void* out, void* stream) {
  if (shape->rows == 0) return cudaSuccess;
  if (shape->kv_heads < 1 || shape->heads % shape->kv_heads != 0) return cudaErrorInvalidValue;
  return WithType(shape->bf16, [&]<typename T>(T*) {
    const auto s = static_cast<cudaStream_t>(stream);
    if (!freshet::LaunchWithDim<T>(shape->dim, shape->heads / shape->kv_heads, *shape,
                                   Inputs{inputs, shape->rows}, q, keys, values, scratch, s)) {
      return static_cast<int>(cudaErrorInvalidValue);
    }
    freshet::Merge<T><<<static_cast<unsigned int>(shape->rows * shape->heads),
                        static_cast<unsigned int>(shape->dim), 0, s>>>(
        scratch, static_cast<T*>(out), shape->dim, shape->splits);
    return static_cast<int>(cudaGetLastError());
  });
}
