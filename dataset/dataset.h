#ifndef FRESHET_DATASET_DATASET_H_
#define FRESHET_DATASET_DATASET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace freshet {

// One task for the model.
struct DatasetRow {
  std::string prompt;                             // text given to the model, never empty
  std::map<std::string, std::string> attributes;  // all fields; `answer` where the dataset has one
};

// A fixed sequence of rows: the same index gives the same row for the life of the object and after
// a restart with the same options. Implementations are immutable and thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;  // >= 1
  // OUT_OF_RANGE unless 0 <= index < size().
  virtual absl::StatusOr<DatasetRow> Get(int64_t index) const = 0;
  // Where people find the row: "FILE:LINE" for a file, else the generator's or the list's index.
  virtual std::string Where(int64_t index) const = 0;
};

// OUT_OF_RANGE, with index and size, unless 0 <= index < size.
absl::Status CheckRowIndex(int64_t index, int64_t size);

// A dataset in two disjoint parts.
struct DatasetSplit {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> held_out;
};

// Holds out the last `held_out_rows` rows. INVALID_ARGUMENT unless 1 <= held_out_rows < size().
absl::StatusOr<DatasetSplit> SplitHeldOut(std::shared_ptr<const Dataset> dataset,
                                          int64_t held_out_rows);

}  // namespace freshet

#endif  // FRESHET_DATASET_DATASET_H_
