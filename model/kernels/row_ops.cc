#include "model/kernels/row_ops.h"

#include <cmath>

#include "model/kernels/bf16.h"
#include "model/kernels/vector_math.h"

namespace freshet {
namespace {

FRESHET_MULTIARCH
float SumOfSquares(const float* x, int64_t size) {
  float lanes[kFloatLanes] = {};
  int64_t i = 0;
  for (; i + kFloatLanes <= size; i += kFloatLanes) {
    for (int64_t l = 0; l < kFloatLanes; ++l) lanes[l] += x[i + l] * x[i + l];
  }
  for (int64_t l = 0; i < size; ++i, ++l) lanes[l] += x[i] * x[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

FRESHET_MULTIARCH
void Scale(const float* x, const float* weight, float factor, int64_t size, float* out) {
  for (int64_t i = 0; i < size; ++i) out[i] = x[i] * factor * weight[i];
}

float Read(float number) { return number; }
float Read(uint16_t bits) { return WidenBf16(bits); }
void Write(float number, float& to) { to = number; }
void Write(float number, uint16_t& to) { to = RoundToBf16(number); }

// sigmoid(g) = 1 / (1 + e^-|g|), or e^-|g| times that.
FRESHET_ALWAYS_INLINE float Sigmoid(float g) {
  const float e = ExpNonPositive(g < 0 ? g : -g);
  const float numerator = g < 0 ? e : 1.0F;
  return numerator / (1.0F + e);
}

// Enough that a compiler vectorizes a loop over them and does not unroll it before.
constexpr int64_t kRowBlock = 64;

// Calls block(first, count) for all blocks of kRowBlock numbers. A block reads its numbers before
// it writes, so that loops vectorize although outputs may replace inputs.
template <typename Block>
FRESHET_ALWAYS_INLINE void ForBlocks(int64_t size, const Block& block) {
  int64_t first = 0;
  for (; first + kRowBlock <= size; first += kRowBlock) block(first, kRowBlock);
  if (first < size) block(first, size - first);
}

template <typename T>
FRESHET_ALWAYS_INLINE void ReadBlock(const T* from, int64_t count, float (&to)[kRowBlock]) {
  for (int64_t l = 0; l < count; ++l) to[l] = Read(from[l]);
}

template <typename T>
FRESHET_ALWAYS_INLINE void WriteBlock(const float (&from)[kRowBlock], int64_t count, T* to) {
  T numbers[kRowBlock];
  for (int64_t l = 0; l < kRowBlock; ++l) Write(from[l], numbers[l]);
  for (int64_t l = 0; l < count; ++l) to[l] = numbers[l];
}

template <typename T>
FRESHET_ALWAYS_INLINE void SwiGlu(const T* gate_up, int64_t size, T* out) {
  ForBlocks(size, [=](int64_t first, int64_t count) FRESHET_ALWAYS_INLINE_LAMBDA {
    float gate[kRowBlock] = {};
    float up[kRowBlock] = {};
    ReadBlock(gate_up + first, count, gate);
    ReadBlock(gate_up + size + first, count, up);
    for (int64_t l = 0; l < kRowBlock; ++l) up[l] *= gate[l] * Sigmoid(gate[l]);
    WriteBlock(up, count, out + first);
  });
}

// d silu(g) / d g = s + g s (1 - s) with s = sigmoid(g).
template <typename T>
FRESHET_ALWAYS_INLINE void SwiGluGradient(const T* gate_up, const T* d, int64_t size, T* out) {
  ForBlocks(size, [=](int64_t first, int64_t count) FRESHET_ALWAYS_INLINE_LAMBDA {
    float gate[kRowBlock] = {};
    float up[kRowBlock] = {};
    float change[kRowBlock] = {};
    ReadBlock(gate_up + first, count, gate);
    ReadBlock(gate_up + size + first, count, up);
    ReadBlock(d + first, count, change);
    for (int64_t l = 0; l < kRowBlock; ++l) {
      const float s = Sigmoid(gate[l]);
      up[l] *= change[l] * (s + gate[l] * s * (1.0F - s));
      gate[l] *= change[l] * s;
    }
    WriteBlock(up, count, out + first);
    WriteBlock(gate, count, out + size + first);
  });
}

FRESHET_MULTIARCH
float DotOfThree(const float* a, const float* b, const float* c, int64_t size) {
  float lanes[kFloatLanes] = {};
  int64_t i = 0;
  for (; i + kFloatLanes <= size; i += kFloatLanes) {
    for (int64_t l = 0; l < kFloatLanes; ++l) lanes[l] += a[i + l] * b[i + l] * c[i + l];
  }
  for (int64_t l = 0; i < size; ++i, ++l) lanes[l] += a[i] * b[i] * c[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

FRESHET_MULTIARCH
void NormGradient(const float* x, const float* weight, float inverse, float share, const float* d,
                  int64_t size, float* dx, float* dw) {
  for (int64_t i = 0; i < size; ++i) {
    dx[i] = d[i] * weight[i] * inverse - x[i] * share;
    dw[i] += d[i] * x[i] * inverse;
  }
}

}  // namespace

float RmsNormRow(const float* x, const float* weight, int64_t size, double eps, float* out) {
  const double mean = SumOfSquares(x, size) / static_cast<double>(size);
  const auto inverse = static_cast<float>(1.0 / std::sqrt(mean + eps));
  Scale(x, weight, inverse, size, out);
  return inverse;
}

void RmsNormRowGradient(const float* x, const float* weight, float inverse, const float* d,
                        int64_t size, float* dx, float* dw) {
  const float mean = DotOfThree(d, weight, x, size) / static_cast<float>(size);
  NormGradient(x, weight, inverse, mean * inverse * inverse * inverse, d, size, dx, dw);
}

FRESHET_MULTIARCH
void RopeHead(const float* head, const float* cos, const float* sin, int64_t half, bool back,
              float* out) {
  const float sign = back ? -1.0F : 1.0F;
  ForBlocks(half, [=](int64_t first, int64_t count) FRESHET_ALWAYS_INLINE_LAMBDA {
    float a[kRowBlock] = {};
    float b[kRowBlock] = {};
    ReadBlock(head + first, count, a);
    ReadBlock(head + half + first, count, b);
    for (int64_t l = 0; l < count; ++l) {
      const float c = cos[first + l];
      const float s = sign * sin[first + l];
      out[first + l] = a[l] * c - b[l] * s;
      out[half + first + l] = b[l] * c + a[l] * s;
    }
  });
}

FRESHET_MULTIARCH
void SwiGluRow(const float* gate_up, int64_t size, float* out) { SwiGlu(gate_up, size, out); }

FRESHET_MULTIARCH
void SwiGluRow(const uint16_t* gate_up, int64_t size, uint16_t* out) { SwiGlu(gate_up, size, out); }

FRESHET_MULTIARCH
void SwiGluRowGradient(const float* gate_up, const float* d, int64_t size, float* out) {
  SwiGluGradient(gate_up, d, size, out);
}

FRESHET_MULTIARCH
void SwiGluRowGradient(const uint16_t* gate_up, const uint16_t* d, int64_t size, uint16_t* out) {
  SwiGluGradient(gate_up, d, size, out);
}

FRESHET_MULTIARCH
void AddScaledRow(const float* from, float factor, int64_t size, float* to) {
  for (int64_t i = 0; i < size; ++i) to[i] += from[i] * factor;
}

}  // namespace freshet
