#include "model/model_weights.h"

#include <cstring>

#include "base/str_cat.h"

namespace freshet {
namespace {

// Converts stored bytes, possibly unaligned, to `target` [size] fp32.
absl::Status Convert(const StoredTensor& stored, float* target, int64_t size) {
  const auto count = static_cast<size_t>(size);
  if (stored.dtype == Dtype::kF32) {
    std::memcpy(target, stored.data.data(), count * sizeof(float));
    return absl::OkStatus();
  }
  if (stored.dtype != Dtype::kBf16 && stored.dtype != Dtype::kF16) {
    return InvalidArgument(stored.path, ": dtype ", DtypeName(stored.dtype),
                           " is not supported for weights; use F32, BF16 or F16");
  }
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, stored.data.data() + i * sizeof(bits), sizeof(bits));
    target[i] = stored.dtype == Dtype::kBf16
                    ? static_cast<float>(c10::BFloat16(bits, c10::BFloat16::from_bits()))
                    : static_cast<float>(c10::Half(bits, c10::Half::from_bits()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FillArena(const ModelFiles& files, const ParameterLayout& layout,
                       const at::Tensor& flat) {
  float* arena = flat.mutable_data_ptr<float>();
  for (const ParameterEntry& entry : layout.entries) {
    const StoredTensor* stored = files.Find(entry.name);
    if (stored == nullptr || stored->shape != entry.shape) {
      return InvalidArgument(files.path(), ": tensor ", entry.name, " is missing or misshapen");
    }
    const absl::Status status = Convert(*stored, arena + entry.offset, entry.size);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace freshet
