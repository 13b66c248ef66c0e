#ifndef FRESHET_CONTROLLER_DATASET_JSONL_DATASET_H_
#define FRESHET_CONTROLLER_DATASET_JSONL_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "controller/dataset/dataset.h"
#include "controller/dataset/row_builder.h"

namespace freshet {

struct JsonlDatasetOptions {
  std::string path;
  RowOptions row{.prompt = "{question}", .answer = "answer", .fields = {}, .required = {}};
  uint64_t max_line_bytes = 4 << 20;
  uint64_t max_file_bytes = 1 << 30;
};

// A file with one JSON object a line (aliases of field names: row_builder.h). Lines of white space,
// a byte order mark and carriage returns are skipped. All rows are held in memory. Thread-safe.
class JsonlDataset final : public Dataset {
 public:
  // Reads and checks the whole file.
  // Returns:
  //   NOT_FOUND: no such file, or it cannot be read.
  //   INVALID_ARGUMENT: not a regular file, too large, no rows, a bad template, or bad lines:
  //     "PATH:LINE: ..." one line each, at most 5 and "and N more".
  static absl::StatusOr<std::unique_ptr<JsonlDataset>> Load(const JsonlDatasetOptions& options);

  int64_t size() const override { return static_cast<int64_t>(rows_.size()); }
  absl::StatusOr<DatasetRow> Get(int64_t index) const override;
  std::string Where(int64_t index) const override;

 private:
  struct NumberedRow {
    DatasetRow row;
    int64_t line = 0;  // from 1
  };
  JsonlDataset(std::string path, std::vector<NumberedRow> rows)
      : path_(std::move(path)), rows_(std::move(rows)) {}

  const std::string path_;
  const std::vector<NumberedRow> rows_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_DATASET_JSONL_DATASET_H_
