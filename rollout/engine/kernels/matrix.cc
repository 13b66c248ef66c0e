#include "rollout/engine/kernels/matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "model/dtype.h"
#include "rollout/engine/kernels/vector_math.h"

namespace freshet {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache line

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

FRESHET_MULTIARCH
void RoundRow(const float* values, int64_t size, uint16_t* to) {
  for (int64_t i = 0; i < size; ++i) to[i] = RoundToBf16(values[i]);
}

// Weights are fp32 or the bits of bf16.
float ToFloat(float value) { return value; }
float ToFloat(uint16_t bits) { return WidenBf16(bits); }
uint16_t ToBf16(float value) { return RoundToBf16(value); }
uint16_t ToBf16(uint16_t bits) { return bits; }

// Scale of the integers that stand for `size` numbers.
float Int8Scale(const float* values, int64_t size) {
  float largest = 0;
  for (int64_t i = 0; i < size; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest / 127;
}

int32_t Quantize(float value, float scale) {
  if (!(scale > 0)) return 0;
  return static_cast<int32_t>(std::nearbyint(std::clamp(value / scale, -127.0F, 127.0F)));
}

// An int8 row: the integers of all blocks, the blocks' scales, and the sums of their integers
// times -128, which undo the 128 that a matrix adds to its own.
void QuantizeRow(const float* values, int64_t columns, std::byte* to) {
  const int64_t blocks = Int8Blocks(columns);
  auto* integers = reinterpret_cast<int8_t*>(to);
  auto* scales = reinterpret_cast<float*>(to + blocks * kInt8Block);
  auto* offsets = reinterpret_cast<int32_t*>(scales + blocks);
  for (int64_t b = 0; b < blocks; ++b) {
    const float* block = values + b * kInt8Block;
    const int64_t size = std::min(kInt8Block, columns - b * kInt8Block);
    scales[b] = Int8Scale(block, size);
    int32_t sum = 0;
    for (int64_t i = 0; i < size; ++i) {
      const int32_t integer = Quantize(block[i], scales[b]);
      integers[b * kInt8Block + i] = static_cast<int8_t>(integer);
      sum += integer;
    }
    offsets[b] = -128 * sum;
  }
}

int64_t RowBytes(MatrixFormat format, int64_t columns) {
  if (format == MatrixFormat::kInt8) return Int8Blocks(columns) * (kInt8Block + 8);
  return columns * (format == MatrixFormat::kFloat32 ? 4 : 2);
}

int64_t PanelBytes(MatrixFormat format, int64_t columns) {
  constexpr int64_t kRows = PackedMatrix::kPanelRows;
  if (format == MatrixFormat::kInt8) return Int8Blocks(columns) * kRows * (kInt8Block + 4);
  return kRows * (format == MatrixFormat::kFloat32 ? columns * 4 : RoundUp(columns, 2) * 2);
}

}  // namespace

const char* MatrixFormatName(MatrixFormat format) {
  switch (format) {
    case MatrixFormat::kFloat32:
      return "fp32";
    case MatrixFormat::kBfloat16:
      return "bf16";
    case MatrixFormat::kInt8:
      return "int8";
  }
  return "fp32";
}

AlignedBytes AllocateAligned(int64_t bytes) {
  void* data =
      std::aligned_alloc(kLine, static_cast<size_t>(RoundUp(std::max<int64_t>(bytes, 1), kLine)));
  if (data == nullptr) throw std::bad_alloc();
  return AlignedBytes(static_cast<std::byte*>(data));
}

Activations::Activations(MatrixFormat format, int64_t columns)
    : format_(format), columns_(columns), stride_(RoundUp(RowBytes(format, columns), kLine)) {}

void Activations::Resize(int64_t rows) {
  if (rows <= capacity_) return;
  data_ = AllocateAligned(rows * stride_);
  // Zeroes the padding, which is multiplied as well.
  std::memset(data_.get(), 0, static_cast<size_t>(rows * stride_));
  capacity_ = rows;
}

void Activations::Store(int64_t row, const float* values) {
  std::byte* to = data_.get() + row * stride_;
  if (format_ == MatrixFormat::kFloat32) {
    std::memcpy(to, values, static_cast<size_t>(columns_) * sizeof(float));
    return;
  }
  if (format_ == MatrixFormat::kInt8) return QuantizeRow(values, columns_, to);
  RoundRow(values, columns_, reinterpret_cast<uint16_t*>(to));
}

void Activations::Load(int64_t row, float* values) const {
  const std::byte* from = this->row(row);
  if (format_ == MatrixFormat::kFloat32) {
    std::memcpy(values, from, static_cast<size_t>(columns_) * sizeof(float));
    return;
  }
  const auto* bits = reinterpret_cast<const uint16_t*>(from);
  for (int64_t i = 0; i < columns_; ++i) values[i] = WidenBf16(bits[i]);
}

PackedMatrix::PackedMatrix(int64_t rows, int64_t columns, MatrixFormat format)
    : rows_(rows),
      columns_(columns),
      panel_bytes_(PanelBytes(format, columns)),
      format_(format),
      data_(AllocateAligned(panels() * panel_bytes_)) {}

PackedMatrix::PackedMatrix(const float* weights, int64_t rows, int64_t columns, MatrixFormat format,
                           ThreadPool& pool)
    : PackedMatrix(rows, columns, format) {
  pool.For(panels(), [&](int64_t panel, int) { PackPanel(weights, panel); });
}

PackedMatrix::PackedMatrix(const uint16_t* weights, int64_t rows, int64_t columns,
                           MatrixFormat format, ThreadPool& pool)
    : PackedMatrix(rows, columns, format) {
  pool.For(panels(), [&](int64_t panel, int) { PackPanel(weights, panel); });
}

template <typename T>
void PackedMatrix::PackPanel(const T* weights, int64_t panel) {
  std::byte* data = data_.get() + panel * panel_bytes_;
  const int64_t first = panel * kPanelRows;
  const int64_t live = std::min(kPanelRows, rows_ - first);
  if (format_ == MatrixFormat::kInt8) return PackInt8Panel(weights + first * columns_, live, data);
  if (live < kPanelRows || columns_ % 2 != 0) {
    std::memset(data, 0, static_cast<size_t>(panel_bytes_));
  }
  for (int64_t r = 0; r < live; ++r) {
    const T* row = weights + (first + r) * columns_;
    if (format_ == MatrixFormat::kFloat32) {
      float* to = reinterpret_cast<float*>(data) + r;
      for (int64_t k = 0; k < columns_; ++k) to[k * kPanelRows] = ToFloat(row[k]);
    } else {
      uint16_t* to = reinterpret_cast<uint16_t*>(data) + 2 * r;
      for (int64_t k = 0; k < columns_; ++k) to[(k / 2) * 2 * kPanelRows + k % 2] = ToBf16(row[k]);
    }
  }
}

template <typename T>
void PackedMatrix::PackInt8Panel(const T* weights, int64_t live, std::byte* data) const {
  float block[kInt8Block];
  for (int64_t first = 0; first < columns_; first += kInt8Block) {
    auto* scales = reinterpret_cast<float*>(data);
    auto* integers = reinterpret_cast<uint8_t*>(scales + kPanelRows);
    std::fill_n(scales, kPanelRows, 0.0F);
    std::fill_n(integers, kPanelRows * kInt8Block, uint8_t{128});
    const int64_t size = std::min(kInt8Block, columns_ - first);
    for (int64_t r = 0; r < live; ++r) {
      const T* row = weights + r * columns_ + first;
      for (int64_t k = 0; k < size; ++k) block[k] = ToFloat(row[k]);
      scales[r] = Int8Scale(block, size);
      for (int64_t k = 0; k < size; ++k) {
        integers[(k / 4 * kPanelRows + r) * 4 + k % 4] =
            static_cast<uint8_t>(Quantize(block[k], scales[r]) + 128);
      }
    }
    data += kPanelRows * (kInt8Block + 4);
  }
}

}  // namespace freshet
