#include "services/runtime/file_stamp.h"

#include <sys/stat.h>

namespace freshet::runtime {

FileStamp StampOf(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec, info.st_size, info.st_ino};
}

}  // namespace freshet::runtime
