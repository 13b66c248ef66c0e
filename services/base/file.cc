#include "services/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

// Closes a descriptor at the end of a scope.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return WriteError(path, errno);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteError(const std::string& path, int error_number) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT;
  return StatusOf(
      full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kFailedPrecondition, path,
      ": cannot be written: ", std::strerror(error_number));
}

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return NotFound(path, ": cannot be opened: ", std::strerror(errno));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return NotFound(path, ": ", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path, ": not a regular file");
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > max_bytes) {
    return InvalidArgument(path, ": ", size, " bytes, more than the limit of ", max_bytes);
  }
  std::string contents(size, '\0');
  size_t done = 0;
  while (done < contents.size()) {
    const ssize_t got = ::read(fd.get(), contents.data() + done, contents.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return NotFound(path, ": cannot be read: ", std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  contents.resize(done);
  return contents;
}

absl::Status SyncPath(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 || ::fsync(fd.get()) != 0) return WriteError(path, errno);
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view contents) {
  const std::string temporary = StrCat(path, ".tmp");
  {
    const Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (fd.get() < 0) return WriteError(path, errno);
    absl::Status status = WriteAll(fd.get(), contents, path);
    if (status.ok() && ::fsync(fd.get()) != 0) status = WriteError(path, errno);
    if (!status.ok()) {
      ::unlink(temporary.c_str());
      return status;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary.c_str());
    return WriteError(path, error_number);
  }
  return absl::OkStatus();
}

LineAppender::~LineAppender() {
  if (fd_ >= 0) ::close(fd_);
}

LineAppender::LineAppender(LineAppender&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

LineAppender& LineAppender::operator=(LineAppender&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

absl::StatusOr<LineAppender> LineAppender::Open(const std::string& path) {
  LineAppender appender;
  appender.path_ = path;
  appender.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (appender.fd_ < 0) return WriteError(path, errno);
  return appender;
}

absl::Status LineAppender::Append(std::string_view lines) {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return WriteError(path_, errno);
  absl::Status status = WriteAll(fd_, lines, path_);
  if (!status.ok() && ::ftruncate(fd_, info.st_size) != 0) {
    return Internal(path_, ": a failed write could not be undone: ", std::strerror(errno));
  }
  return status;
}

absl::Status LineAppender::Sync() {
  if (::fsync(fd_) != 0) return WriteError(path_, errno);
  return absl::OkStatus();
}

}  // namespace freshet
