#include "cli/cluster/rotating_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace freshet {

RotatingLog::RotatingLog(std::string path, int64_t max_bytes)
    : path_(std::move(path)), max_bytes_(max_bytes) {
  Open();
}

RotatingLog::~RotatingLog() {
  if (fd_ >= 0) ::close(fd_);
}

void RotatingLog::Open() {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  struct stat info {};
  bytes_ = fd_ >= 0 && ::fstat(fd_, &info) == 0 ? info.st_size : 0;
}

void RotatingLog::Write(std::string_view bytes) {
  if (bytes_ > 0 && bytes_ + static_cast<int64_t>(bytes.size()) > max_bytes_) {
    if (fd_ >= 0) ::close(fd_);
    std::rename(path_.c_str(), (path_ + ".1").c_str());
    Open();
  }
  while (fd_ >= 0 && !bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(written));
    bytes_ += written;
  }
}

}  // namespace freshet
