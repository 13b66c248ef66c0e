#ifndef FRESHET_DATASET_JSONL_DATASET_H_
#define FRESHET_DATASET_JSONL_DATASET_H_

#include <cstdint>
#include <functional>
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
  job::v1::Dataset dataset;           // prompt, answer and fields: see RowBuilder
  std::vector<std::string> required;  // as for RowBuilder
  std::function<absl::Status(const DatasetRow&)> check;  // of each row; may be empty
  uint64_t max_line_bytes = 4 << 20;
  uint64_t max_file_bytes = 1 << 30;
};

// A file with one JSON object per line (field aliases: row_builder.h). Ignores blank lines, a byte
// order mark and carriage returns. Keeps the file open and reads rows on demand: at most 8 KiB per
// call, or the row's line if longer. Memory: an index of at most two 32-byte entries per 4 KiB of
// file, plus one line during a call. Checksums in the index detect lines that changed after Load.
// Thread-safe.
class JsonlDataset final : public Dataset {
 public:
  // Opens the file below `roots`, then reads and checks all of it.
  // Returns:
  //   NOT_FOUND: the file does not exist or cannot be read.
  //   INVALID_ARGUMENT: not a regular file, too large, no rows, a bad template, or bad lines:
  //     "PATH:LINE: ...", at most 5 lines, then "and N more".
  //   Errors of DataRoots.
  static absl::StatusOr<std::unique_ptr<JsonlDataset>> Load(const JsonlDatasetOptions& options,
                                                            const DataRoots& roots);

  int64_t size() const override { return rows_; }
  // FAILED_PRECONDITION: lines around the row changed since Load; the message names the file.
  absl::StatusOr<DatasetRow> Get(int64_t index) const override;
  // Only the path if the line cannot be found.
  std::string Where(int64_t index) const override;

  // Memory held between calls.
  uint64_t held_bytes() const { return sizeof(*this) + blocks_.capacity() * sizeof(Block); }

 private:
  // Lines that start within one 4 KiB stretch, or a single longer line.
  struct Block {
    uint64_t begin = 0;      // byte offset of its first line
    int64_t first_line = 0;  // 1-based number of that line
    int64_t first_row = 0;   // index of the first row at or after that line
    uint64_t checksum = 0;   // of its lines
  };
  struct FoundRow {
    std::string text;
    int64_t line = 0;  // 1-based
  };
  JsonlDataset(const JsonlDatasetOptions& options, RowBuilder builder, RegularFile file)
      : path_(options.path),
        max_line_bytes_(options.max_line_bytes),
        builder_(std::move(builder)),
        file_(std::move(file)) {}

  // Reads the file, checks each row and fills blocks_.
  absl::Status Scan(const std::function<absl::Status(const DatasetRow&)>& check);
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
