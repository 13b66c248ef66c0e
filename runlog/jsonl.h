#ifndef FRESHET_RUNLOG_JSONL_H_
#define FRESHET_RUNLOG_JSONL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace freshet {

// Files of one JSON object a line, each line ended by a newline. A last line without one is torn:
// its writer was killed, readers ignore it, a resume cuts it off.

// How a file of lines ended.
struct JsonlTail {
  int64_t lines = 0;        // whole lines
  uint64_t torn_bytes = 0;  // length of the torn last line; 0 when there is none
};

// Calls `row` with the number (from 1) and the text of every whole line, reading in chunks.
// Returns:
//   NOT_FOUND: the file cannot be opened; the message names it.
//   INVALID_ARGUMENT: a line longer than `max_line_bytes`, named by file and number.
//   else the first error that `row` returns.
absl::StatusOr<JsonlTail> ForEachLine(
    const std::string& path, size_t max_line_bytes,
    const std::function<absl::Status(int64_t number, std::string_view line)>& row);

// Cuts a torn last line off the file and fsyncs it; nothing else is rewritten.
// Returns the number of bytes cut, or NOT_FOUND (no such file), FAILED_PRECONDITION (unwritable).
absl::StatusOr<uint64_t> CutTornLine(const std::string& path);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_JSONL_H_
