#include "dataset/generated_space.h"

#include "base/permutation.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 62;
// Arbitrary, but must not change: another value would leak evaluation rows into resumed jobs.
constexpr uint64_t kPartitionKey = 0x6672657368657431ULL;

}  // namespace

absl::StatusOr<GeneratedSpace> GeneratedSpace::Create(int64_t size, const GeneratedRows& rows,
                                                      DatasetPart part) {
  if (size < 1 || size > kMaxSize) {
    return InvalidArgument("dataset makes ", size, " different rows; it must be 1..2^62");
  }
  if (rows.train_rows < 1 || rows.train_rows > size) {
    return InvalidArgument("dataset.train_rows is ", rows.train_rows, "; it must be 1..", size,
                           ", the number of different rows of this dataset");
  }
  const int64_t least = part == DatasetPart::kHeldOut ? 1 : 0;
  if (rows.held_out_rows < least || rows.held_out_rows > size - rows.train_rows) {
    return InvalidArgument("held-out rows are ", rows.held_out_rows, "; they must be ", least, "..",
                           size - rows.train_rows, ", what dataset.train_rows ", rows.train_rows,
                           " leaves of ", size, " different rows");
  }
  GeneratedSpace space;
  space.size_ = size;
  space.seed_ = rows.seed;
  if (part == DatasetPart::kTrain) {
    space.part_size_ = rows.train_rows;
    space.rows_ = rows.train_rows;
  } else {
    space.part_begin_ = rows.train_rows;
    space.part_size_ = size - rows.train_rows;
    space.rows_ = rows.held_out_rows;
  }
  return space;
}

int64_t GeneratedSpace::Item(int64_t row) const {
  return Permute(kPartitionKey, size_, part_begin_ + Permute(seed_, part_size_, row));
}

int64_t SpaceSize(int64_t base, int64_t exponent) {
  if (base <= 1) return 1;
  int64_t size = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (size > kMaxSize / base) return -1;
    size *= base;
  }
  return size;
}

}  // namespace freshet
