#ifndef FRESHET_DATASET_COPY_DATASET_H_
#define FRESHET_DATASET_COPY_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dataset/dataset.h"
#include "dataset/generated_space.h"

namespace freshet {

struct CopyDatasetOptions {
  std::string symbols = "abcdefgh";  // distinct characters (UTF-8), without '='
  int64_t length = 4;                // symbols per row, >= 1; (number of symbols)^length <= 2^62
  GeneratedRows rows;                // at most (number of symbols)^length
};

// Texts to repeat: "gabf=" with answer "gabf". Rows are distinct; training and held-out rows are
// disjoint (generated_space.h). Thread-safe.
class CopyDataset final : public Dataset {
 public:
  // INVALID_ARGUMENT: an option is out of range; the message names it, its value and its bound.
  static absl::StatusOr<std::unique_ptr<CopyDataset>> Create(const CopyDatasetOptions& options,
                                                             DatasetPart part);

  int64_t size() const override { return space_.rows(); }
  absl::StatusOr<DatasetRow> Get(int64_t index) const override;
  std::string Where(int64_t index) const override;

 private:
  CopyDataset(std::vector<std::string> symbols, int64_t length, const GeneratedSpace& space)
      : symbols_(std::move(symbols)), length_(length), space_(space) {}

  const std::vector<std::string> symbols_;
  const int64_t length_;
  const GeneratedSpace space_;
};

}  // namespace freshet

#endif  // FRESHET_DATASET_COPY_DATASET_H_
