#include "dataset/generated_space.h"

#include "base/permutation.h"
#include "base/str_cat.h"
#include "job/eval_sets.h"

namespace freshet {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 62;
// Arbitrary, but must not change: another value would leak evaluation rows into resumed jobs.
constexpr uint64_t kPartitionKey = 0x6672657368657431ULL;

}  // namespace

absl::StatusOr<GeneratedSpace> GeneratedSpace::Create(int64_t size, const job::v1::JobSpec& spec,
                                                      DatasetPart part) {
  const int64_t train_rows = spec.dataset().train_rows();
  const int64_t held_out_rows = HeldOutRows(spec);
  if (size < 1 || size > kMaxSize) {
    return InvalidArgument("dataset makes ", size, " different rows; it must be 1..2^62");
  }
  if (train_rows < 1 || train_rows > size) {
    return InvalidArgument("dataset.train_rows is ", train_rows, "; it must be 1..", size,
                           ", the number of different rows of this dataset");
  }
  const int64_t least = part == DatasetPart::kHeldOut ? 1 : 0;
  if (held_out_rows < least || held_out_rows > size - train_rows) {
    return InvalidArgument("held-out rows are ", held_out_rows, "; they must be ", least, "..",
                           size - train_rows, ", what dataset.train_rows ", train_rows,
                           " leaves of ", size, " different rows");
  }
  GeneratedSpace space;
  space.size_ = size;
  space.seed_ = static_cast<uint64_t>(spec.seed());
  if (part == DatasetPart::kTrain) {
    space.part_size_ = train_rows;
    space.rows_ = train_rows;
  } else {
    space.part_begin_ = train_rows;
    space.part_size_ = size - train_rows;
    space.rows_ = held_out_rows;
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
