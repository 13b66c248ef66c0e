#ifndef FRESHET_BASE_FILE_H_
#define FRESHET_BASE_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace freshet {

// Reads a whole regular file.
// Returns:
//   NOT_FOUND: the file does not exist or cannot be read; the message names the path.
//   INVALID_ARGUMENT: not a regular file, or larger than `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes);

// Atomically creates or replaces `path`: writes and fsyncs a temporary file in the same folder and
// renames it. Readers see either the old or the new contents.
// RESOURCE_EXHAUSTED: disk full. FAILED_PRECONDITION: other errors; the message names the path.
absl::Status WriteFileAtomically(const std::string& path, std::string_view contents);

// Writes all bytes to `fd`, an open file whose `path` is for messages. Errors of WriteError.
absl::Status WriteAll(int fd, std::string_view bytes, const std::string& path);

// Calls fsync on a file or directory, so that earlier writes or renames survive a power loss.
absl::Status SyncPath(const std::string& path);

// Appends lines to a file, one write(2) per Append, so a killed process leaves at most one torn
// last line. Confined to one thread at a time.
class LineAppender {
 public:
  LineAppender() = default;

  // Opens for appending. Creates the file if absent.
  static absl::StatusOr<LineAppender> Open(const std::string& path);

  // Writes `lines`, each ending in a newline. If the disk is full (RESOURCE_EXHAUSTED), truncates
  // the file to its previous size.
  absl::Status Append(std::string_view lines);
  absl::Status Sync();

 private:
  UniqueFd fd_;
  std::string path_;
};

// Status for the errno of a failed write to `path`: RESOURCE_EXHAUSTED if the disk or quota is
// full, otherwise FAILED_PRECONDITION.
absl::Status WriteError(const std::string& path, int error_number);

}  // namespace freshet

#endif  // FRESHET_BASE_FILE_H_
