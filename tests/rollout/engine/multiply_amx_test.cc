// Tests the AMX kernels on any CPU: their code, with emulated tile instructions.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "base/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/dtype.h"
#include "rollout/engine/kernels/matrix.h"
#include "rollout/engine/kernels/multiply_kernels.h"
#include "tests/rollout/engine/random_numbers.h"

#undef _tile_dpbf16ps
#undef _tile_dpbsud
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero

namespace freshet {
namespace {
namespace emulated {

// NOLINTBEGIN(readability-identifier-naming)
// As in Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, with palette 1.
// What would raise an exception fails the test.
struct TileRegister {
  int rows = 0;
  int row_bytes = 0;
  std::byte data[16][64] = {};

  template <typename T>
  T& At(int row, int i) {
    return *reinterpret_cast<T*>(data[row] + static_cast<size_t>(i) * sizeof(T));
  }
  void Zero() { std::memset(data, 0, sizeof(data)); }
};
TileRegister tiles[8];
bool is_configured = false;

TileRegister& Configured(int tile) {
  EXPECT_TRUE(is_configured && tiles[tile].rows > 0) << "tile " << tile;
  return tiles[tile];
}

void _tile_loadconfig(const void* config) {
  const auto* bytes = static_cast<const uint8_t*>(config);
  EXPECT_EQ(bytes[0], 1) << "palette";
  for (int i = 1; i < 16; ++i) EXPECT_EQ(bytes[i], 0) << "start row, reserved";
  for (int i = 0; i < 16; ++i) {
    const int row_bytes = bytes[16 + 2 * i] + 256 * bytes[17 + 2 * i];
    const int rows = bytes[48 + i];
    if (i >= 8) {
      EXPECT_EQ(row_bytes, 0);
      EXPECT_EQ(rows, 0);
      continue;
    }
    EXPECT_LE(row_bytes, 64);
    EXPECT_LE(rows, 16);
    EXPECT_EQ(row_bytes == 0, rows == 0);
    tiles[i] = {rows, row_bytes, {}};
  }
  is_configured = true;
}

void _tile_release() { is_configured = false; }

void _tile_zero(int tile) { Configured(tile).Zero(); }

void _tile_loadd(int tile, const void* base, int64_t stride) {
  TileRegister& to = Configured(tile);
  to.Zero();
  for (int r = 0; r < to.rows; ++r) {
    std::memcpy(to.data[r], static_cast<const std::byte*>(base) + r * stride,
                static_cast<size_t>(to.row_bytes));
  }
}

void _tile_stored(int tile, void* base, int64_t stride) {
  const TileRegister& from = Configured(tile);
  for (int r = 0; r < from.rows; ++r) {
    std::memcpy(static_cast<std::byte*>(base) + r * stride, from.data[r],
                static_cast<size_t>(from.row_bytes));
  }
}

void CheckShapes(const TileRegister& sums, const TileRegister& a, const TileRegister& b) {
  EXPECT_EQ(sums.rows, a.rows);
  EXPECT_EQ(sums.row_bytes, b.row_bytes);
  EXPECT_EQ(a.row_bytes / 4, b.rows);
}

void _tile_dpbf16ps(int sums, int first, int second) {
  TileRegister& c = Configured(sums);
  TileRegister& a = Configured(first);
  TileRegister& b = Configured(second);
  CheckShapes(c, a, b);
  for (int m = 0; m < c.rows; ++m) {
    for (int n = 0; n < c.row_bytes / 4; ++n) {
      float even_odd[2] = {};
      for (int k = 0; k < a.row_bytes / 4; ++k) {
        for (int i = 0; i < 2; ++i) {
          even_odd[i] = std::fma(WidenBf16(a.At<uint16_t>(m, 2 * k + i)),
                                 WidenBf16(b.At<uint16_t>(k, 2 * n + i)), even_odd[i]);
        }
      }
      c.At<float>(m, n) += even_odd[0] + even_odd[1];
    }
  }
}

void _tile_dpbsud(int sums, int first, int second) {
  TileRegister& c = Configured(sums);
  TileRegister& a = Configured(first);
  TileRegister& b = Configured(second);
  CheckShapes(c, a, b);
  for (int m = 0; m < c.rows; ++m) {
    for (int n = 0; n < c.row_bytes / 4; ++n) {
      for (int k = 0; k < a.row_bytes / 4; ++k) {
        for (int i = 0; i < 4; ++i) {
          c.At<int32_t>(m, n) += a.At<int8_t>(m, 4 * k + i) * b.At<uint8_t>(k, 4 * n + i);
        }
      }
    }
  }
}
// NOLINTEND(readability-identifier-naming)

#define FRESHET_VECTOR_BYTES 16
#include "rollout/engine/kernels/multiply_tile.inc"
// Uses what multiply_tile.inc declares.
#include "rollout/engine/kernels/multiply_amx.inc"
#undef FRESHET_VECTOR_BYTES

}  // namespace emulated

class MultiplyAmx : public testing::TestWithParam<MatrixFormat> {
 protected:
  Activations Rows(const std::vector<float>& numbers, int64_t columns) const {
    Activations x(GetParam(), columns);
    const int64_t rows = static_cast<int64_t>(numbers.size()) / columns;
    x.Resize(rows);
    for (int64_t i = 0; i < rows; ++i) x.Store(i, numbers.data() + i * columns);
    return x;
  }
  void Run(const Activations& x, int64_t count, const PackedMatrix& matrix,
           const ProductOutput& out) const {
    const Operands operands{
        x.row(0),      x.stride(), matrix.panel(0), matrix.panel_bytes(), matrix.columns(),
        matrix.rows(), out};
    if (GetParam() == MatrixFormat::kInt8) {
      emulated::RunTilePanels<emulated::Int8Tiles>(operands, count, 0, matrix.panels());
    } else {
      emulated::RunTilePanels<emulated::Bfloat16Tiles>(operands, count, 0, matrix.panels());
    }
    EXPECT_FALSE(emulated::is_configured) << "tiles are released";
  }
  ThreadPool pool_{1};
};

TEST_P(MultiplyAmx, EqualsThePortableKernels) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 1}, {31, 7}, {32, 64}, {70, 33}, {40, 194}}) {
    const std::vector<float> weights = RandomNumbers(rows * columns, 1);
    const std::vector<float> bias = RandomNumbers(rows, 2);
    const PackedMatrix matrix(weights.data(), rows, columns, GetParam(), pool_);
    for (const int64_t count : {1, 2, 15, 16, 17, 31, 32, 33, 48, 77}) {
      SCOPED_TRACE(StrCat(count, " x [", rows, ", ", columns, "]"));
      const Activations x = Rows(RandomNumbers(count * columns, 3), columns);
      const int64_t stride = rows + 3;
      for (const bool add : {false, true}) {
        std::vector<float> expected(static_cast<size_t>(count * stride), 5.0F);
        std::vector<float> actual = expected;
        const float* add_bias = add ? bias.data() : nullptr;
        Multiply(x, count, matrix, {expected.data(), stride, add_bias, add}, CpuKernels::kPortable,
                 pool_);
        Run(x, count, matrix, {actual.data(), stride, add_bias, add});
        EXPECT_THAT(actual, testing::Pointwise(testing::FloatNear(2e-5F), expected));
      }
    }
  }
}

TEST_P(MultiplyAmx, ARowIsTheSameInAnyBatch) {
  constexpr int64_t kRows = 70;
  constexpr int64_t kColumns = 100;
  const std::vector<float> weights = RandomNumbers(kRows * kColumns, 1);
  const PackedMatrix matrix(weights.data(), kRows, kColumns, GetParam(), pool_);
  const std::vector<float> row = RandomNumbers(kColumns, 4);
  std::vector<float> alone(kRows);
  Run(Rows(row, kColumns), 1, matrix, {alone.data(), kRows});
  for (const int64_t count : {2, 16, 17, 32, 33, 63, 64, 90}) {
    std::vector<float> numbers = RandomNumbers(count * kColumns, 5);
    std::copy(row.begin(), row.end(), numbers.end() - kColumns);
    std::vector<float> out(static_cast<size_t>(count * kRows));
    Run(Rows(numbers, kColumns), count, matrix, {out.data(), kRows});
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), out.end() - kRows)) << count << " rows";
  }
}

TEST_P(MultiplyAmx, PaddingIsNotAnotherPanel) {
  // In bf16, the second of the two panels holds infinity, which times 0 is NaN.
  std::vector<float> weights(64, 1.0F);
  std::fill(weights.begin() + 32, weights.end(), std::numeric_limits<float>::max());
  const PackedMatrix matrix(weights.data(), 64, 1, GetParam(), pool_);
  std::vector<float> out(64);
  Run(Rows({2.0F}, 1), 1, matrix, {out.data(), 64});
  for (int n = 0; n < 32; ++n) EXPECT_NEAR(out[static_cast<size_t>(n)], 2.0F, 1e-5F) << n;
}

INSTANTIATE_TEST_SUITE_P(Formats, MultiplyAmx,
                         testing::Values(MatrixFormat::kBfloat16, MatrixFormat::kInt8),
                         [](const auto& tested) { return MatrixFormatName(tested.param); });

}  // namespace
}  // namespace freshet
