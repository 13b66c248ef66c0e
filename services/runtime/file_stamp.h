#ifndef FRESHET_SERVICES_RUNTIME_FILE_STAMP_H_
#define FRESHET_SERVICES_RUNTIME_FILE_STAMP_H_

#include <cstdint>
#include <string>

namespace freshet::runtime {

// Identifies one state of a file. Follows links, such as those of Kubernetes volumes.
struct FileStamp {
  int64_t mtime_ns = 0;
  int64_t size = 0;
  uint64_t inode = 0;
  bool operator==(const FileStamp&) const = default;
};

// All zero if the file does not exist.
FileStamp StampOf(const std::string& path);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_FILE_STAMP_H_
