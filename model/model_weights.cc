#include "model/model_weights.h"

#include <cstring>
#include <type_traits>

#include "base/str_cat.h"

namespace freshet {
namespace {

template <typename T>
T Load(const char* data, size_t index) {
  T value{};
  std::memcpy(&value, data + index * sizeof(value), sizeof(value));
  return value;
}

// Converts stored bytes, possibly unaligned, to `target` [size], fp32 or the bits of bf16.
template <typename T>
absl::Status Convert(const StoredTensor& stored, T* target, int64_t size) {
  constexpr Dtype kTarget = std::is_same_v<T, float> ? Dtype::kF32 : Dtype::kBf16;
  const auto count = static_cast<size_t>(size);
  const char* data = stored.data.data();
  if (stored.dtype == kTarget) {
    std::memcpy(target, data, count * sizeof(T));
    return absl::OkStatus();
  }
  if (stored.dtype != Dtype::kF32 && stored.dtype != Dtype::kBf16 && stored.dtype != Dtype::kF16) {
    return InvalidArgument(stored.path, ": dtype ", DtypeName(stored.dtype),
                           " is not supported for weights; use F32, BF16 or F16");
  }
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    if (stored.dtype == Dtype::kF32) {
      value = Load<float>(data, i);
    } else if (stored.dtype == Dtype::kBf16) {
      value = WidenBf16(Load<uint16_t>(data, i));
    } else {
      value = c10::Half(Load<uint16_t>(data, i), c10::Half::from_bits());
    }
    if constexpr (kTarget == Dtype::kF32) {
      target[i] = value;
    } else {
      target[i] = RoundToBf16(value);
    }
  }
  return absl::OkStatus();
}

// Elements [begin, end) of the arena.
template <typename T>
absl::Status Fill(const ModelFiles& files, const ParameterLayout& layout, int64_t begin,
                  int64_t end, T* flat) {
  for (const ParameterEntry& entry : layout.entries) {
    if (entry.offset < begin || entry.offset >= end) continue;
    const StoredTensor& stored = *files.Find(entry.name);
    const absl::Status status = Convert(stored, flat + (entry.offset - begin), entry.size);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckShapes(const ModelFiles& files, const ParameterLayout& layout) {
  for (const ParameterEntry& entry : layout.entries) {
    const StoredTensor* stored = files.Find(entry.name);
    if (stored == nullptr || stored->shape != entry.shape) {
      return InvalidArgument(files.path(), ": tensor ", entry.name, " is missing or misshapen");
    }
  }
  return absl::OkStatus();
}

absl::Status FillArena(const ModelFiles& files, const ParameterLayout& layout,
                       const at::Tensor& flat, int64_t begin) {
  const absl::Status shapes = CheckShapes(files, layout);
  if (!shapes.ok()) return shapes;
  const int64_t end = begin + flat.numel();
  if (flat.scalar_type() == at::kBFloat16) {
    return Fill(files, layout, begin, end, static_cast<uint16_t*>(flat.mutable_data_ptr()));
  }
  return Fill(files, layout, begin, end, flat.mutable_data_ptr<float>());
}

}  // namespace freshet
