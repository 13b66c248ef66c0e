#include "cli/cluster/rotating_log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>
#include <utility>

#include "base/file.h"

namespace freshet {

RotatingLog::RotatingLog(std::string path, int64_t max_bytes)
    : path_(std::move(path)), max_bytes_(max_bytes) {
  Open();
}

void RotatingLog::Open() {
  fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  struct stat info {};
  bytes_ = ::fstat(fd_.get(), &info) == 0 ? info.st_size : 0;
}

void RotatingLog::Write(std::string_view bytes) {
  if (bytes_ > 0 && bytes_ + static_cast<int64_t>(bytes.size()) > max_bytes_) {
    std::rename(path_.c_str(), (path_ + ".1").c_str());
    Open();
  }
  if (WriteAll(fd_.get(), bytes, path_).ok()) bytes_ += static_cast<int64_t>(bytes.size());
}

}  // namespace freshet
