#ifndef FRESHET_MODEL_KERNELS_BF16_H_
#define FRESHET_MODEL_KERNELS_BF16_H_

#include <bit>
#include <cstdint>

namespace freshet {

// The bits of the bf16 number next to `value`, ties to even, as PyTorch rounds. Values above the
// largest bf16 become infinite; NaN stays NaN.
constexpr uint16_t RoundToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  // Without a branch, so that loops vectorize.
  return static_cast<uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? 0x7FC0U : rounded);
}

constexpr float WidenBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

}  // namespace freshet

#endif  // FRESHET_MODEL_KERNELS_BF16_H_
