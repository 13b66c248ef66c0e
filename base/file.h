#ifndef FRESHET_BASE_FILE_H_
#define FRESHET_BASE_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace freshet {

// Whole contents of a regular file.
// Returns:
//   NOT_FOUND: no such file, or it cannot be read; the message names the path.
//   INVALID_ARGUMENT: not a regular file, or larger than `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes);

// Creates or replaces `path` with `contents`, written and fsynced under a temporary name beside it
// and renamed, so that a reader sees the old contents or the new, never a part.
// Returns RESOURCE_EXHAUSTED when the disk is full, else FAILED_PRECONDITION naming the path.
absl::Status WriteFileAtomically(const std::string& path, std::string_view contents);

// fsync of a file or a directory: what was written or renamed in it survives a power cut.
absl::Status SyncPath(const std::string& path);

// Appends whole lines to one file; each Append is one write(2), so that a killed process leaves at
// most one torn last line. Confined to one thread at a time.
class LineAppender {
 public:
  LineAppender() = default;

  // Opens for appending, creating the file when absent.
  static absl::StatusOr<LineAppender> Open(const std::string& path);

  // Writes `lines` (each ended by a newline). On a full disk (RESOURCE_EXHAUSTED) the file is cut
  // back to what it held before.
  absl::Status Append(std::string_view lines);
  absl::Status Sync();

 private:
  UniqueFd fd_;
  std::string path_;
};

// Status for the errno of a failed write to `path`: RESOURCE_EXHAUSTED for a full disk or quota,
// else FAILED_PRECONDITION.
absl::Status WriteError(const std::string& path, int error_number);

}  // namespace freshet

#endif  // FRESHET_BASE_FILE_H_
