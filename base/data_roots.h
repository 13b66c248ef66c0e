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
  uint64_t size = 0;  // when opened
};

// Allow-list of folders for files that jobs name. The kernel resolves each path at open time
// (openat2 with RESOLVE_BENEATH), so neither ".." nor a symbolic link can lead outside, even if
// files change concurrently. Links inside a folder must be relative; the folder itself may be a
// link. Thread-safe.
class DataRoots {
 public:
  // openat2 with RESOLVE_BENEATH. Returns a descriptor, or -1 with errno set.
  using OpenBeneath = int (*)(int folder, const char* path, int flags);

  // Refuses every path.
  DataRoots() = default;
  // Opens any path that the process may open.
  static DataRoots Unlimited();
  // Opens paths below `folders`, which need not exist yet. Relative folders start at the working
  // directory. `open` replaces the system call if not null.
  // INVALID_ARGUMENT: an empty folder name.
  static absl::StatusOr<DataRoots> Create(const std::vector<std::string>& folders,
                                          OpenBeneath open = nullptr);

  // Opens `path` for reading, with open(2) `flags`.
  // Returns:
  //   NOT_FOUND: the file does not exist or cannot be opened; the message names the path.
  //   INVALID_ARGUMENT: outside the folders; the message names them and --data-root.
  //   FAILED_PRECONDITION: the kernel or the sandbox has no openat2.
  absl::StatusOr<UniqueFd> Open(const std::string& path, int flags) const;
  // Errors of Open. INVALID_ARGUMENT: not a regular file.
  absl::StatusOr<RegularFile> OpenFile(const std::string& path) const;
  // Reads the whole file. Errors of OpenFile. INVALID_ARGUMENT: larger than `max_bytes`.
  absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes) const;
  // Returns false if the file does not exist. Returns true for paths that Open refuses or cannot
  // open.
  bool Exists(const std::string& path) const;

 private:
  // Like Open, but sets `error` to the errno if the open itself fails, and leaves it unchanged
  // otherwise.
  absl::StatusOr<UniqueFd> TryOpen(const std::string& path, int flags, int& error) const;
  absl::StatusOr<UniqueFd> OpenBelow(const std::string& path, int flags, int& error) const;

  bool unlimited_ = false;
  std::vector<std::string> folders_;  // absolute
  OpenBeneath open_ = nullptr;
};

// Returns INVALID_ARGUMENT "PATH: N bytes, more than the limit of M" if size > max_bytes.
absl::Status CheckFileSize(const std::string& path, uint64_t size, uint64_t max_bytes);

}  // namespace freshet

#endif  // FRESHET_BASE_DATA_ROOTS_H_
