#ifndef FRESHET_DATASET_ARITHMETIC_DATASET_H_
#define FRESHET_DATASET_ARITHMETIC_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>

#include "dataset/dataset.h"
#include "dataset/generated_space.h"

namespace freshet {

struct ArithmeticDatasetOptions {
  int64_t operands = 2;  // 2..10
  int64_t digits = 2;    // per operand, >= 1; operands * digits <= 18
  GeneratedRows rows;    // at most 10^(operands * digits)
};

// Sums such as "12+34=" with answer "046": operands are zero-padded to `digits` characters, the sum
// to `digits` + 1. Rows are distinct; training and held-out rows are disjoint (generated_space.h).
// Thread-safe.
class ArithmeticDataset final : public Dataset {
 public:
  // INVALID_ARGUMENT: an option is out of range; the message names it, its value and its bound.
  static absl::StatusOr<std::unique_ptr<ArithmeticDataset>> Create(
      const ArithmeticDatasetOptions& options, DatasetPart part);

  int64_t size() const override { return space_.rows(); }
  absl::StatusOr<DatasetRow> Get(int64_t index) const override;
  std::string Where(int64_t index) const override;

 private:
  ArithmeticDataset(const ArithmeticDatasetOptions& options, const GeneratedSpace& space)
      : operands_(options.operands), digits_(options.digits), space_(space) {}

  const int64_t operands_;
  const int64_t digits_;
  const GeneratedSpace space_;
};

}  // namespace freshet

#endif  // FRESHET_DATASET_ARITHMETIC_DATASET_H_
