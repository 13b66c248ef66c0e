#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/data_roots.h"
#include "base/str_cat.h"

namespace freshet {

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

absl::Status WriteError(const std::string& path, int error_number) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT;
  return StatusOf(
      full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kFailedPrecondition, path,
      ": cannot be written: ", std::strerror(error_number));
}

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t max_bytes) {
  return DataRoots::Unlimited().ReadFile(path, max_bytes);
}

absl::Status SyncPath(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0 || ::fsync(fd.get()) != 0) return WriteError(path, errno);
  return absl::OkStatus();
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view contents) {
  const std::string temporary = StrCat(path, ".tmp");
  {
    const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
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

absl::StatusOr<LineAppender> LineAppender::Open(const std::string& path) {
  LineAppender appender;
  appender.path_ = path;
  appender.fd_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (appender.fd_.get() < 0) return WriteError(path, errno);
  return appender;
}

absl::Status LineAppender::Append(std::string_view lines) {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return WriteError(path_, errno);
  absl::Status status = WriteAll(fd_.get(), lines, path_);
  if (!status.ok() && ::ftruncate(fd_.get(), info.st_size) != 0) {
    return Internal(path_, ": a failed write could not be undone: ", std::strerror(errno));
  }
  return status;
}

absl::Status LineAppender::Sync() {
  if (::fsync(fd_.get()) != 0) return WriteError(path_, errno);
  return absl::OkStatus();
}

}  // namespace freshet
