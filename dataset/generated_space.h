#ifndef FRESHET_DATASET_GENERATED_SPACE_H_
#define FRESHET_DATASET_GENERATED_SPACE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "freshet/job/v1/job_spec.pb.h"

namespace freshet {

// Selects rows of a generator.
enum class DatasetPart { kTrain, kHeldOut };

// Distinct items of a finite space [0, size), for training or evaluation. A fixed permutation,
// independent of the seed, assigns its first `train_rows` items to training; evaluation draws from
// the rest. The seed orders the training rows and selects the held-out rows. So for a fixed
// train_rows, no evaluation row of any seed is a training row of any seed. Thread-compatible: const
// methods may run concurrently.
class GeneratedSpace {
 public:
  // Uses the job's dataset.train_rows, HeldOutRows() and seed. INVALID_ARGUMENT unless 1 <= size <=
  // 2^62, train_rows >= 1, HeldOutRows() >= 0 (>= 1 for kHeldOut) and their sum is at most `size`.
  static absl::StatusOr<GeneratedSpace> Create(int64_t size, const job::v1::JobSpec& spec,
                                               DatasetPart part);

  int64_t rows() const { return rows_; }
  // Item of `row`. Requires 0 <= row < rows().
  int64_t Item(int64_t row) const;

 private:
  GeneratedSpace() = default;

  int64_t size_ = 0;
  int64_t part_begin_ = 0;
  int64_t part_size_ = 0;
  int64_t rows_ = 0;
  uint64_t seed_ = 0;
};

// base^exponent, or -1 if it exceeds 2^62. Requires base >= 1 and exponent >= 0.
int64_t SpaceSize(int64_t base, int64_t exponent);

}  // namespace freshet

#endif  // FRESHET_DATASET_GENERATED_SPACE_H_
