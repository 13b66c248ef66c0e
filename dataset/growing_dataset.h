#ifndef FRESHET_DATASET_GROWING_DATASET_H_
#define FRESHET_DATASET_GROWING_DATASET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/data_roots.h"
#include "base/mutex.h"
#include "dataset/dataset.h"
#include "dataset/jsonl_dataset.h"

namespace freshet {

// Rows of a file, and of the files that appear in a folder while the job runs. RowOf offers each
// row once before it repeats any: those of the first file in its order, then those of each further
// file in their own order as soon as it is there; in between, passes over all rows so far. It
// depends on the calls before it: calls must have increasing ordinals, and the last one may be
// repeated. After a restart, as many rows count as offered as there were prompts before.
//
// Files are named *.jsonl and read in the order of their names; a file must be complete when it
// appears under its name. A file with an error of its own, or whose rows fail the check, is skipped
// with a warning; one that cannot be read is tried again. Beyond kMaxFiles files in the folder no
// further one is read. Thread-safe, but only one thread may call RowOf.
class GrowingDataset final : public Dataset {
 public:
  using Check = std::function<absl::Status(const Dataset&)>;
  static constexpr size_t kMaxFiles = 256;  // each is kept open

  // `options` are those of `first`; its path is replaced by the files in `folder`.
  GrowingDataset(std::shared_ptr<const Dataset> first, JsonlDatasetOptions options,
                 std::string folder, DataRoots roots);

  // Sets what checks a file's rows before they are used, and admits no file before that.
  void SetCheck(Check check) ABSL_LOCKS_EXCLUDED(mu_);

  int64_t size() const override ABSL_LOCKS_EXCLUDED(mu_);
  // Of the first file, whose rows come first.
  int64_t first_size() const { return first_->size(); }
  absl::StatusOr<DatasetRow> Get(int64_t index) const override;
  std::string Where(int64_t index) const override;
  // Looks for new files when all rows have been offered, and otherwise from time to time.
  int64_t RowOf(uint64_t seed, int64_t ordinal, bool shuffle) const override
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Place {
    std::shared_ptr<const Dataset> rows;
    int64_t index = 0;
  };
  absl::StatusOr<Place> Find(int64_t index) const ABSL_LOCKS_EXCLUDED(mu_);
  // Files that are there for the first time and have no error.
  std::vector<std::shared_ptr<const Dataset>> NewFiles(const Check& check) const;
  absl::StatusOr<std::vector<std::string>> ListFiles() const;

  const std::shared_ptr<const Dataset> first_;
  const JsonlDatasetOptions options_;
  const std::string folder_;
  const DataRoots roots_;

  // Used by RowOf only.
  mutable std::set<std::string> seen_;    // files that were taken or have an error of their own
  mutable std::set<std::string> warned_;  // files with an error
  mutable std::string folder_error_;      // the last one that was reported

  mutable Mutex mu_;
  Check check_ ABSL_GUARDED_BY(mu_);
  mutable std::vector<std::shared_ptr<const Dataset>> parts_ ABSL_GUARDED_BY(mu_);
  mutable int64_t size_ ABSL_GUARDED_BY(mu_) = 0;
  mutable int64_t offered_ ABSL_GUARDED_BY(mu_) = -1;  // rows that were offered once; -1: no call
  mutable int64_t repeated_ ABSL_GUARDED_BY(mu_) = 0;
  mutable int64_t last_ordinal_ ABSL_GUARDED_BY(mu_) = -1;
  mutable int64_t last_row_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace freshet

#endif  // FRESHET_DATASET_GROWING_DATASET_H_
