#ifndef FRESHET_BASE_DATA_ROOTS_H_
#define FRESHET_BASE_DATA_ROOTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace freshet {

struct RegularFile {
  UniqueFd fd;
  uint64_t size = 0;  // when it was opened
};

// The folders below which a process opens the files that jobs name. The kernel resolves each path
// when it opens it (openat2 with RESOLVE_BENEATH), so that neither ".." nor a symbolic link leads
// outside, even while files change. Within a folder a link must be relative; a folder may itself be
// a link. Thread-safe.
class DataRoots {
 public:
  // openat2 with RESOLVE_BENEATH: a descriptor, or -1 with errno.
  using OpenBeneath = int (*)(int folder, const char* path, int flags);

  // No folder: every path is refused.
  DataRoots() = default;
  // Opens every path, with the rights of the process.
  static DataRoots Unlimited();
  // Opens paths below `folders`; relative ones start at the working directory. They need not exist
  // yet. `open`: null for the system call. INVALID_ARGUMENT: an empty name.
  static absl::StatusOr<DataRoots> Create(const std::vector<std::string>& folders,
                                          OpenBeneath open = nullptr);

  // Opens `path` with `flags` of open(2), to read.
  // Returns:
  //   NOT_FOUND: no such file, or it cannot be opened; the message names the path.
  //   INVALID_ARGUMENT: outside of the folders; the message names them and --data-root.
  //   FAILED_PRECONDITION: the kernel, or the sandbox of the process, has no openat2.
  absl::StatusOr<UniqueFd> Open(const std::string& path, int flags) const;
  // Errors of Open. INVALID_ARGUMENT: not a regular file.
  absl::StatusOr<RegularFile> OpenFile(const std::string& path) const;
  // Whole contents. Errors of OpenFile. INVALID_ARGUMENT: larger than `max_bytes`.
  absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes) const;
  // False if there is no such file. True also for a path that Open refuses or cannot open.
  bool Exists(const std::string& path) const;

 private:
  // Open; sets `error` to the errno of an open that failed, and to nothing else.
  absl::StatusOr<UniqueFd> TryOpen(const std::string& path, int flags, int& error) const;
  absl::StatusOr<UniqueFd> OpenBelow(const std::string& path, int flags, int& error) const;

  bool unlimited_ = false;
  std::vector<std::string> folders_;  // absolute
  OpenBeneath open_ = nullptr;
};

// "PATH: N bytes, more than the limit of M", INVALID_ARGUMENT, unless size <= max_bytes.
absl::Status CheckFileSize(const std::string& path, uint64_t size, uint64_t max_bytes);

}  // namespace freshet

#endif  // FRESHET_BASE_DATA_ROOTS_H_
