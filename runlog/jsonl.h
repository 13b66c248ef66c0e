#ifndef FRESHET_RUNLOG_JSONL_H_
#define FRESHET_RUNLOG_JSONL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"

namespace freshet {

// Files with one JSON object per line, each line ending in a newline. A last line without one is
// torn, because its writer was killed: readers ignore it and a resume removes it.

// End of a file of lines.
struct JsonlTail {
  int64_t lines = 0;        // complete lines
  uint64_t torn_bytes = 0;  // length of the torn last line; 0 if there is none
};

// Calls `row` with the number (from 1) and text of every complete line, reading in chunks.
// Returns:
//   NOT_FOUND: the file cannot be opened; the message names it.
//   INVALID_ARGUMENT: a line longer than `max_line_bytes`; the message has file and line number.
//   Otherwise the first error returned by `row`.
absl::StatusOr<JsonlTail> ForEachLine(
    const std::string& path, size_t max_line_bytes,
    const std::function<absl::Status(int64_t number, std::string_view line)>& row);

// Removes a torn last line and fsyncs the file. Returns the number of bytes removed. NOT_FOUND: no
// such file. FAILED_PRECONDITION: not writable.
absl::StatusOr<uint64_t> CutTornLine(const std::string& path);

// Writes such a file from rows that have a function ToJson. Confined to one thread at a time.
class JsonlLog {
 public:
  // Opens for appending. Creates the file if absent, and removes a torn last line.
  static absl::StatusOr<JsonlLog> Open(const std::string& path);
  // Appends all rows with one write(2), so a kill leaves a prefix of them and at most one torn
  // line. RESOURCE_EXHAUSTED: disk full, nothing written. FAILED_PRECONDITION: other errors.
  template <typename Row>
  absl::Status Append(const std::vector<Row>& rows) {
    std::string lines;
    for (const Row& row : rows) lines += ToJson(row) + "\n";
    return rows.empty() ? absl::OkStatus() : appender_.Append(lines);
  }
  template <typename Row>
  absl::Status Append(const Row& row) {
    return appender_.Append(ToJson(row) + "\n");
  }
  absl::Status Sync() { return appender_.Sync(); }

 private:
  explicit JsonlLog(LineAppender appender) : appender_(std::move(appender)) {}

  LineAppender appender_;
};

}  // namespace freshet

#endif  // FRESHET_RUNLOG_JSONL_H_
