#ifndef FRESHET_ROLLOUT_ENGINE_KERNELS_MATRIX_H_
#define FRESHET_ROLLOUT_ENGINE_KERNELS_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/thread_pool.h"
#include "rollout/engine/kernels/cpu_features.h"

namespace freshet {

// kInt8: integers in [-127, 127] with an fp32 scale for every kInt8Block columns of a row.
enum class MatrixFormat { kFloat32, kBfloat16, kInt8 };
const char* MatrixFormatName(MatrixFormat format);

constexpr int64_t kInt8Block = 64;
constexpr int64_t Int8Blocks(int64_t columns) { return (columns + kInt8Block - 1) / kInt8Block; }

struct FreeDeleter {
  void operator()(void* data) const { std::free(data); }
};
// Uninitialized memory, aligned to a cache line. Throws std::bad_alloc.
using AlignedBytes = std::unique_ptr<std::byte[], FreeDeleter>;
AlignedBytes AllocateAligned(int64_t bytes);

// The left operand of products, and the embedding: rows of `columns` numbers in the format of the
// matrices that they are multiplied with. Grows as needed and is used again.
class Activations {
 public:
  Activations(MatrixFormat format, int64_t columns);

  // Makes room for `rows` rows, whose contents are then undefined.
  void Resize(int64_t rows);
  // Rounds row `row` from `values` [columns]. Different rows may be stored concurrently.
  void Store(int64_t row, const float* values);
  void Load(int64_t row, float* values) const;  // not of int8

  MatrixFormat format() const { return format_; }
  int64_t columns() const { return columns_; }
  const std::byte* row(int64_t row) const { return data_.get() + row * stride_; }
  int64_t stride() const { return stride_; }  // bytes

 private:
  MatrixFormat format_;
  int64_t columns_;
  int64_t stride_;
  int64_t capacity_ = 0;
  AlignedBytes data_;
};

// A weight matrix [rows, columns] in the order in which the kernels read it: panels of kPanelRows
// rows, in each of them column after column, bf16 in pairs of columns. int8 has block after block:
// the rows' scales, and then the integers + 128 in fours of columns. Const methods may run
// concurrently, but not with Repack.
class PackedMatrix {
 public:
  static constexpr int64_t kPanelRows = 32;

  PackedMatrix() = default;
  // Packs `weights` [rows][columns], fp32 or the bits of bf16. Throws std::bad_alloc.
  PackedMatrix(const float* weights, int64_t rows, int64_t columns, MatrixFormat format,
               ThreadPool& pool);
  PackedMatrix(const uint16_t* weights, int64_t rows, int64_t columns, MatrixFormat format,
               ThreadPool& pool);
  // Replaces the weights by others of the same shape. T: float, or uint16_t for the bits of bf16.
  template <typename T>
  void Repack(const T* weights, ThreadPool& pool);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  MatrixFormat format() const { return format_; }
  int64_t panels() const { return (rows_ + kPanelRows - 1) / kPanelRows; }
  const std::byte* panel(int64_t panel) const { return data_.get() + panel * panel_bytes_; }
  int64_t panel_bytes() const { return panel_bytes_; }

 private:
  PackedMatrix(int64_t rows, int64_t columns, MatrixFormat format);
  template <typename T>
  void PackPanel(const T* weights, int64_t panel);
  template <typename T>
  void PackInt8Panel(const T* weights, int64_t live, std::byte* data) const;

  int64_t rows_ = 0;
  int64_t columns_ = 0;
  int64_t panel_bytes_ = 0;
  MatrixFormat format_ = MatrixFormat::kFloat32;
  AlignedBytes data_;
};

// Where a product goes: data[i * stride + n] = (or +=) sum + bias[n].
struct ProductOutput {
  float* data = nullptr;
  int64_t stride = 0;           // in floats
  const float* bias = nullptr;  // [matrix.rows()]; null: none
  bool add = false;
  bool round = false;  // rounds the sums to bf16
};

// Products x_i . w_n of the first `count` rows of x with all rows of the matrix, which has the same
// columns and format. Sums are fp32 in the order of the columns (for int8, of the blocks, which are
// summed as integers), so a row's result does not depend on the other rows or on the threads.
void Multiply(const Activations& x, int64_t count, const PackedMatrix& matrix,
              const ProductOutput& out, CpuKernels kernels, ThreadPool& pool);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_KERNELS_MATRIX_H_
