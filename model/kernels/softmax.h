#ifndef FRESHET_MODEL_KERNELS_SOFTMAX_H_
#define FRESHET_MODEL_KERNELS_SOFTMAX_H_

#include <cstdint>
#include <vector>

namespace freshet {

float MaxOf(const float* values, int64_t size);
bool AllFinite(const float* values, int64_t size);

// Unnormalized probabilities of softmax(logits * scale), relative to the likeliest token.
struct SoftmaxWeights {
  static constexpr int64_t kBlock = 256;
  std::vector<float> weights;      // e^((logits[i] - max) * scale)
  std::vector<double> block_sums;  // of kBlock weights each
  double total = 0;
};
// `max` is MaxOf(logits). Keeps the vectors' memory.
void ComputeSoftmax(const float* logits, int64_t size, float max, double scale,
                    SoftmaxWeights& out);

// log softmax(logits * scale)[id].
float LogSoftmaxAt(const float* logits, int64_t size, double scale, int32_t id);
// log of the sum of e^(logits[i] * scale).
double LogSumExp(const float* logits, int64_t size, double scale);

}  // namespace freshet

#endif  // FRESHET_MODEL_KERNELS_SOFTMAX_H_
