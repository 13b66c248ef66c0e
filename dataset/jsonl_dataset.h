#ifndef FRESHET_DATASET_JSONL_DATASET_H_
#define FRESHET_DATASET_JSONL_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/data_roots.h"
#include "dataset/dataset.h"
#include "dataset/row_builder.h"

namespace freshet {

struct JsonlDatasetOptions {
  std::string path;
  RowOptions row{.prompt = "{question}", .answer = "answer", .fields = {}, .required = {}};
  uint64_t max_line_bytes = 4 << 20;
  uint64_t max_file_bytes = 1 << 30;
};

// A file with one JSON object a line (aliases of field names: row_builder.h). Lines of white space,
// a byte order mark and carriage returns are skipped. The file stays open and rows are read on
// demand. Memory: an index of at most two entries of 32 bytes for each 4 KiB of the file, and one
// line during a call. A call reads at most 8 KiB, or its row's line where that is longer. Checksums
// in the index detect lines that changed after Load. Thread-safe.
class JsonlDataset final : public Dataset {
 public:
  // Reads and checks the whole file, which is opened below `roots`.
  // Returns:
  //   NOT_FOUND: no such file, or it cannot be read.
  //   INVALID_ARGUMENT: not a regular file, too large, no rows, a bad template, or bad lines:
  //     "PATH:LINE: ..." one line each, at most 5 and "and N more".
  //   Errors of DataRoots.
  static absl::StatusOr<std::unique_ptr<JsonlDataset>> Load(const JsonlDatasetOptions& options,
                                                            const DataRoots& roots);

  int64_t size() const override { return rows_; }
  // FAILED_PRECONDITION naming the file: the lines around the row have changed since Load.
  absl::StatusOr<DatasetRow> Get(int64_t index) const override;
  // The path alone when the line cannot be found.
  std::string Where(int64_t index) const override;

  // Memory that this object holds between calls.
  uint64_t held_bytes() const { return sizeof(*this) + blocks_.capacity() * sizeof(Block); }

 private:
  // Lines that begin within one stretch of 4 KiB, or one line that is longer than that.
  struct Block {
    uint64_t begin = 0;      // of its first line, in bytes
    int64_t first_line = 0;  // number of that line, from 1
    int64_t first_row = 0;   // index of the first row at or after that line
    uint64_t checksum = 0;   // of its lines
  };
  struct FoundRow {
    std::string text;
    int64_t line = 0;  // from 1
  };
  JsonlDataset(const JsonlDatasetOptions& options, RowBuilder builder, RegularFile file)
      : path_(options.path),
        max_line_bytes_(options.max_line_bytes),
        builder_(std::move(builder)),
        file_(std::move(file)) {}

  // Reads the whole file, checks each row and fills blocks_.
  absl::Status Scan();
  absl::StatusOr<FoundRow> FindRow(int64_t index) const;

  const std::string path_;
  const uint64_t max_line_bytes_;
  const RowBuilder builder_;
  const RegularFile file_;
  std::vector<Block> blocks_;
  int64_t rows_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_DATASET_JSONL_DATASET_H_
