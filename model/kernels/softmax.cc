#include "model/kernels/softmax.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "model/kernels/vector_math.h"

namespace freshet {
namespace {

// Sum of the weights of `size` logits, which are written to `weights` unless it is null.
FRESHET_MULTIARCH
float WeightsOf(const float* logits, int64_t size, float max, float scale, float* weights) {
  float lanes[kFloatLanes] = {};
  float block[kFloatLanes];
  for (int64_t i = 0; i < size; i += kFloatLanes) {
    const int64_t live = size - i < kFloatLanes ? size - i : kFloatLanes;
    for (int64_t l = 0; l < kFloatLanes; ++l) {
      const float logit = l < live ? logits[i + l] : -3.0e38F;
      block[l] = ExpNonPositive((logit - max) * scale);
      lanes[l] += block[l];
    }
    if (weights == nullptr) continue;
    for (int64_t l = 0; l < live; ++l) weights[i + l] = block[l];
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

}  // namespace

FRESHET_MULTIARCH
float MaxOf(const float* values, int64_t size) {
  float lanes[kFloatLanes];
  for (float& lane : lanes) lane = values[0];
  int64_t i = 0;
  for (; i + kFloatLanes <= size; i += kFloatLanes) {
    for (int64_t l = 0; l < kFloatLanes; ++l) {
      lanes[l] = values[i + l] > lanes[l] ? values[i + l] : lanes[l];
    }
  }
  float max = lanes[0];
  for (const float lane : lanes) max = lane > max ? lane : max;
  for (; i < size; ++i) max = values[i] > max ? values[i] : max;
  return max;
}

FRESHET_MULTIARCH
bool AllFinite(const float* values, int64_t size) {
  int32_t bad = 0;
  for (int64_t i = 0; i < size; ++i) {
    bad |= (std::bit_cast<int32_t>(values[i]) & 0x7F800000) == 0x7F800000;
  }
  return bad == 0;
}

void ComputeSoftmax(const float* logits, int64_t size, float max, double scale,
                    SoftmaxWeights& out) {
  out.weights.resize(static_cast<size_t>(size));
  out.block_sums.clear();
  out.total = 0;
  for (int64_t i = 0; i < size; i += SoftmaxWeights::kBlock) {
    out.block_sums.push_back(WeightsOf(logits + i, std::min(SoftmaxWeights::kBlock, size - i), max,
                                       static_cast<float>(scale), out.weights.data() + i));
    out.total += out.block_sums.back();
  }
}

double LogSumExp(const float* logits, int64_t size, double scale) {
  const float max = MaxOf(logits, size);
  double total = 0;
  for (int64_t i = 0; i < size; i += SoftmaxWeights::kBlock) {
    total += WeightsOf(logits + i, std::min(SoftmaxWeights::kBlock, size - i), max,
                       static_cast<float>(scale), nullptr);
  }
  return max * scale + std::log(total);
}

float LogSoftmaxAt(const float* logits, int64_t size, double scale, int32_t id) {
  return static_cast<float>(logits[id] * scale - LogSumExp(logits, size, scale));
}

}  // namespace freshet
