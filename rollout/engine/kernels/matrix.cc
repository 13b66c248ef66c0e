#include "rollout/engine/kernels/matrix.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "model/dtype.h"
#include "model/kernels/vector_math.h"

namespace freshet {
namespace {

constexpr int64_t kLine = 64;  // bytes of a cache line
constexpr int64_t kHugePage = int64_t{2} << 20;

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

// Panels are packed in tiles of units: fp32 numbers, or pairs of bf16.
constexpr int64_t kTileUnits = 64;  // four cache lines of each row

void StoreUnits(const float* values, int64_t size, MatrixFormat format, uint32_t* to) {
  if (format == MatrixFormat::kFloat32) {
    std::memcpy(to, values, static_cast<size_t>(size) * sizeof(float));
  } else {
    RoundRow(values, size, reinterpret_cast<uint16_t*>(to));
  }
}

void StoreUnits(const uint16_t* bits, int64_t size, MatrixFormat format, uint32_t* to) {
  if (format == MatrixFormat::kFloat32) {
    for (int64_t i = 0; i < size; ++i) to[i] = std::bit_cast<uint32_t>(WidenBf16(bits[i]));
  } else {
    std::memcpy(to, bits, static_cast<size_t>(size) * sizeof(uint16_t));
  }
}

using FourUnits = uint32_t __attribute__((vector_size(16)));

FourUnits LoadFour(const uint32_t* from) {
  FourUnits four;
  std::memcpy(&four, from, sizeof(four));
  return four;
}

// Past the cache: a panel is larger than what the next step finds there. `to` has 16 bytes'
// alignment.
void StreamFour(const FourUnits& four, uint32_t* to) {
#if defined(__SSE2__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), std::bit_cast<__m128i>(four));
#else
  std::memcpy(to, &four, sizeof(four));
#endif
}

// Call it before other threads read what StreamFour stored.
void FinishStreams() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// to[i * kPanelRows + r] = tile[r][i] for the first `units` units.
void StoreTransposed(const uint32_t (&tile)[PackedMatrix::kPanelRows][kTileUnits], int64_t units,
                     uint32_t* to) {
  constexpr int64_t kRows = PackedMatrix::kPanelRows;
  int64_t i = 0;
  for (; i + 4 <= units; i += 4) {
    for (int64_t r = 0; r < kRows; r += 4) {
      const FourUnits a = LoadFour(&tile[r][i]);
      const FourUnits b = LoadFour(&tile[r + 1][i]);
      const FourUnits c = LoadFour(&tile[r + 2][i]);
      const FourUnits d = LoadFour(&tile[r + 3][i]);
      const FourUnits ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
      const FourUnits cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
      const FourUnits ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      const FourUnits cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
      const FourUnits rows[] = {__builtin_shufflevector(ab, cd, 0, 1, 4, 5),
                                __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
                                __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                                __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
      for (int64_t k = 0; k < 4; ++k) StreamFour(rows[k], &to[(i + k) * kRows + r]);
    }
  }
  for (; i < units; ++i) {
    for (int64_t r = 0; r < kRows; ++r) to[i * kRows + r] = tile[r][i];
  }
}

// Rounds kInt8Block numbers to integers in [-127, 127], which times the returned scale stand for
// them. The scale is NaN if one of them is.
FRESHET_MULTIARCH
float QuantizeBlock(const float* __restrict values, int8_t* __restrict integers) {
  int32_t lanes[kFloatLanes] = {};  // positive floats are ordered like their bits
  for (int64_t i = 0; i < kInt8Block; i += kFloatLanes) {
    for (int64_t l = 0; l < kFloatLanes; ++l) {
      const int32_t bits = std::bit_cast<int32_t>(values[i + l]) & 0x7FFFFFFF;
      lanes[l] = bits > lanes[l] ? bits : lanes[l];
    }
  }
  int32_t largest = 0;
  for (const int32_t lane : lanes) largest = lane > largest ? lane : largest;
  const float scale = std::bit_cast<float>(largest) / 127;
  if (!(scale >= std::numeric_limits<float>::min())) {
    std::memset(integers, 0, kInt8Block);
    return scale;
  }
  for (int64_t i = 0; i < kInt8Block; ++i) {
    // Rounds to even: 1.5 * 2^23. The low byte of the sum is the integer.
    integers[i] = static_cast<int8_t>(std::bit_cast<int32_t>(values[i] / scale + 12582912.0F));
  }
  return scale;
}

// An int8 row: the integers of all blocks, the blocks' scales, and the sums of their integers
// times -128, which undo the 128 that a matrix adds to its own.
void QuantizeRow(const float* values, int64_t columns, std::byte* to) {
  const int64_t blocks = Int8Blocks(columns);
  auto* integers = reinterpret_cast<int8_t*>(to);
  auto* scales = reinterpret_cast<float*>(to + blocks * kInt8Block);
  auto* offsets = reinterpret_cast<int32_t*>(scales + blocks);
  for (int64_t b = 0; b < blocks; ++b) {
    float block[kInt8Block] = {};
    std::copy_n(values + b * kInt8Block, std::min(kInt8Block, columns - b * kInt8Block), block);
    scales[b] = QuantizeBlock(block, integers + b * kInt8Block);
    int32_t sum = 0;
    for (int64_t i = 0; i < kInt8Block; ++i) sum += integers[b * kInt8Block + i];
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
  const int64_t alignment = bytes < kHugePage ? kLine : kHugePage;
  const int64_t size = RoundUp(std::max<int64_t>(bytes, 1), kLine);
  void* data = nullptr;
  if (posix_memalign(&data, static_cast<size_t>(alignment), static_cast<size_t>(size)) != 0) {
    throw std::bad_alloc();
  }
  // Against TLB misses; where it is refused, pages are small. The end that does not fill a huge
  // page takes no more memory than it needs.
  const int64_t whole = size / kHugePage * kHugePage;
  if (whole > 0) madvise(data, static_cast<size_t>(whole), MADV_HUGEPAGE);
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
  Repack(weights, pool);
}

PackedMatrix::PackedMatrix(const uint16_t* weights, int64_t rows, int64_t columns,
                           MatrixFormat format, ThreadPool& pool)
    : PackedMatrix(rows, columns, format) {
  Repack(weights, pool);
}

template <typename T>
void PackedMatrix::Repack(const T* weights, ThreadPool& pool) {
  pool.For(panels(), [&](int64_t panel, int) { PackPanel(weights, panel); });
}
template void PackedMatrix::Repack(const float* weights, ThreadPool& pool);
template void PackedMatrix::Repack(const uint16_t* weights, ThreadPool& pool);

template <typename T>
void PackedMatrix::PackPanel(const T* weights, int64_t panel) {
  std::byte* data = data_.get() + panel * panel_bytes_;
  const int64_t first_row = panel * kPanelRows;
  const int64_t live = std::min(kPanelRows, rows_ - first_row);
  weights += first_row * columns_;
  if (format_ == MatrixFormat::kInt8) return PackInt8Panel(weights, live, data);
  const int64_t unit_columns = format_ == MatrixFormat::kFloat32 ? 1 : 2;
  const int64_t units = (columns_ + unit_columns - 1) / unit_columns;
  alignas(kLine) uint32_t tile[kPanelRows][kTileUnits] = {};  // unused rows stay 0
  for (int64_t first = 0; first < units; first += kTileUnits) {
    const int64_t size = std::min(kTileUnits, units - first);
    const int64_t column = first * unit_columns;
    const int64_t columns = std::min(size * unit_columns, columns_ - column);
    for (int64_t r = 0; r < live; ++r) {
      tile[r][size - 1] = 0;  // half of a pair if the number of columns is odd
      StoreUnits(weights + r * columns_ + column, columns, format_, tile[r]);
    }
    StoreTransposed(tile, size, reinterpret_cast<uint32_t*>(data) + first * kPanelRows);
  }
  FinishStreams();
}

template <typename T>
void PackedMatrix::PackInt8Panel(const T* weights, int64_t live, std::byte* data) const {
  for (int64_t first = 0; first < columns_; first += kInt8Block) {
    auto* scales = reinterpret_cast<float*>(data);
    auto* integers = reinterpret_cast<uint8_t*>(scales + kPanelRows);
    std::fill_n(scales, kPanelRows, 0.0F);
    std::fill_n(integers, kPanelRows * kInt8Block, uint8_t{128});
    const int64_t size = std::min(kInt8Block, columns_ - first);
    for (int64_t r = 0; r < live; ++r) {
      const T* row = weights + r * columns_ + first;
      float block[kInt8Block] = {};
      for (int64_t k = 0; k < size; ++k) block[k] = ToFloat(row[k]);
      int8_t rounded[kInt8Block];
      scales[r] = QuantizeBlock(block, rounded);
      for (int64_t k = 0; k < size; ++k) {
        integers[(k / 4 * kPanelRows + r) * 4 + k % 4] = static_cast<uint8_t>(rounded[k] + 128);
      }
    }
    data += kPanelRows * (kInt8Block + 4);
  }
}

}  // namespace freshet
