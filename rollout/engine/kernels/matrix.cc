#include "rollout/engine/kernels/matrix.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "rollout/engine/kernels/vector_math.h"

namespace freshet {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache line

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

__attribute__((always_inline)) inline uint16_t Round(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7FFFU + ((bits >> 16U) & 1U);
  const uint32_t nan = bits | 0x400000U;
  return static_cast<uint16_t>(((bits & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded) >> 16U);
}

FRESHET_MULTIARCH
void RoundRow(const float* values, int64_t size, uint16_t* to) {
  for (int64_t i = 0; i < size; ++i) to[i] = Round(values[i]);
}

}  // namespace

AlignedBytes AllocateAligned(int64_t bytes) {
  void* data =
      std::aligned_alloc(kLine, static_cast<size_t>(RoundUp(std::max<int64_t>(bytes, 1), kLine)));
  if (data == nullptr) throw std::bad_alloc();
  return AlignedBytes(static_cast<std::byte*>(data));
}

uint16_t ToBfloat16(float value) { return Round(value); }

float FromBfloat16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16U);
}

Activations::Activations(MatrixFormat format, int64_t columns)
    : format_(format),
      columns_(columns),
      stride_(RoundUp(columns * (format == MatrixFormat::kFloat32 ? 4 : 2), kLine)) {}

void Activations::Resize(int64_t rows) {
  if (rows <= capacity_) return;
  data_ = AllocateAligned(rows * stride_);
  // Zeroes the padding: the last column of an odd number is multiplied as a pair.
  std::memset(data_.get(), 0, static_cast<size_t>(rows * stride_));
  capacity_ = rows;
}

void Activations::Store(int64_t row, const float* values) {
  std::byte* to = data_.get() + row * stride_;
  if (format_ == MatrixFormat::kFloat32) {
    std::memcpy(to, values, static_cast<size_t>(columns_) * sizeof(float));
    return;
  }
  RoundRow(values, columns_, reinterpret_cast<uint16_t*>(to));
}

PackedMatrix::PackedMatrix(const float* weights, int64_t rows, int64_t columns, MatrixFormat format,
                           ThreadPool& pool)
    : rows_(rows),
      columns_(columns),
      panel_bytes_(kPanelRows *
                   (format == MatrixFormat::kFloat32 ? columns * 4 : RoundUp(columns, 2) * 2)),
      format_(format),
      data_(AllocateAligned(panels() * panel_bytes_)) {
  pool.For(panels(), [&](int64_t panel, int) { PackPanel(weights, panel); });
}

void PackedMatrix::PackPanel(const float* weights, int64_t panel) {
  std::byte* data = data_.get() + panel * panel_bytes_;
  const int64_t first = panel * kPanelRows;
  const int64_t live = std::min(kPanelRows, rows_ - first);
  if (live < kPanelRows || columns_ % 2 != 0) {
    std::memset(data, 0, static_cast<size_t>(panel_bytes_));
  }
  for (int64_t r = 0; r < live; ++r) {
    const float* row = weights + (first + r) * columns_;
    if (format_ == MatrixFormat::kFloat32) {
      float* to = reinterpret_cast<float*>(data) + r;
      for (int64_t k = 0; k < columns_; ++k) to[k * kPanelRows] = row[k];
    } else {
      uint16_t* to = reinterpret_cast<uint16_t*>(data) + 2 * r;
      for (int64_t k = 0; k < columns_; ++k) {
        to[(k / 2) * 2 * kPanelRows + k % 2] = Round(row[k]);
      }
    }
  }
}

}  // namespace freshet
