#ifndef FRESHET_MODEL_DTYPE_H_
#define FRESHET_MODEL_DTYPE_H_

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace freshet {

enum class Dtype { kF64, kF32, kF16, kBf16, kI64, kI32, kI16, kI8, kU8, kBool };

// safetensors name: "F32", "BF16", ...
constexpr std::string_view DtypeName(Dtype dtype) {
  constexpr std::string_view kNames[] = {"F64", "F32", "F16", "BF16", "I64",
                                         "I32", "I16", "I8",  "U8",   "BOOL"};
  return kNames[static_cast<int>(dtype)];
}

constexpr std::optional<Dtype> ParseDtype(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Dtype::kBool); ++i) {
    if (DtypeName(static_cast<Dtype>(i)) == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

constexpr uint64_t DtypeBytes(Dtype dtype) {
  constexpr uint64_t kBytes[] = {8, 4, 2, 2, 8, 4, 2, 1, 1, 1};
  return kBytes[static_cast<int>(dtype)];
}

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

#endif  // FRESHET_MODEL_DTYPE_H_
