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
  std::string prompt;                             // text given to the model, not empty
  std::map<std::string, std::string> attributes;  // all fields; `answer` if the dataset has one
};

// A sequence of rows. An index always gives the same row; unless the sequence grows
// (GrowingDataset), also after a restart with the same options. Thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;  // >= 1
  // OUT_OF_RANGE unless 0 <= index < size().
  virtual absl::StatusOr<DatasetRow> Get(int64_t index) const = 0;
  // Location of the row for users: "FILE:LINE", or the index in a generator or list.
  virtual std::string Where(int64_t index) const = 0;
  // The row of prompt `ordinal`: RowOfOrdinal, unless the rows have an order of their own. That may
  // depend on earlier calls and on files: ordinals must increase, and the last one may be repeated.
  virtual int64_t RowOf(uint64_t seed, int64_t ordinal, bool shuffle) const;
};

// OUT_OF_RANGE unless 0 <= index < size; the message has both.
absl::Status CheckRowIndex(int64_t index, int64_t size);

// Training and held-out rows.
struct DatasetSplit {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> held_out;
};

// Holds out the last `held_out_rows` rows. INVALID_ARGUMENT unless 1 <= held_out_rows < size().
absl::StatusOr<DatasetSplit> SplitHeldOut(std::shared_ptr<const Dataset> dataset,
                                          int64_t held_out_rows);

}  // namespace freshet

#endif  // FRESHET_DATASET_DATASET_H_
