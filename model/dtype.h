#ifndef FRESHET_MODEL_DTYPE_H_
#define FRESHET_MODEL_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "model/kernels/bf16.h"  // IWYU pragma: export

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

}  // namespace freshet

#endif  // FRESHET_MODEL_DTYPE_H_
