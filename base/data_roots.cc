#include "base/data_roots.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;

// openat2 returns EAGAIN if a rename races with resolving "..".
constexpr int kMaxTries = 16;

int SystemOpenBeneath(int folder, const char* path, int flags) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(::syscall(SYS_openat2, folder, path, &how, sizeof(how)));
}

// `path` relative to `folder`, or nullopt if it is not below it. Compares names only.
std::optional<std::string> RestBehind(const fs::path& folder, const fs::path& path) {
  const auto [end, begin] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  if (end != folder.end()) return std::nullopt;
  fs::path rest;
  for (auto part = begin; part != path.end(); ++part) rest /= *part;
  return rest.empty() ? "." : rest.string();
}

absl::Status CannotOpen(const std::string& path, int error) {
  return NotFound(path, ": cannot be opened: ", std::strerror(error));
}

}  // namespace

DataRoots DataRoots::Unlimited() {
  DataRoots roots;
  roots.unlimited_ = true;
  return roots;
}

absl::StatusOr<DataRoots> DataRoots::Create(const std::vector<std::string>& folders,
                                            OpenBeneath open) {
  DataRoots roots;
  roots.open_ = open != nullptr ? open : SystemOpenBeneath;
  for (const std::string& folder : folders) {
    std::error_code error;
    const fs::path path = fs::absolute(folder, error).lexically_normal();
    if (folder.empty() || error)
      return InvalidArgument("--data-root: \"", folder, "\": not a folder");
    // "/data/" has an empty last component.
    roots.folders_.push_back(path.has_filename() || !path.has_relative_path()
                                 ? path.string()
                                 : path.parent_path().string());
  }
  return roots;
}

absl::StatusOr<UniqueFd> DataRoots::Open(const std::string& path, int flags) const {
  int error = 0;
  return TryOpen(path, flags, error);
}

absl::StatusOr<UniqueFd> DataRoots::TryOpen(const std::string& path, int flags, int& error) const {
  if (!unlimited_) return OpenBelow(path, flags | O_CLOEXEC, error);
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC));
  if (fd.get() >= 0) return fd;
  error = errno;
  return CannotOpen(path, error);
}

absl::StatusOr<UniqueFd> DataRoots::OpenBelow(const std::string& path, int flags,
                                              int& error) const {
  if (folders_.empty()) {
    return InvalidArgument(path, ": jobs may name no files, since this process was started ",
                           "without --data-root; pass it the folder of datasets and models");
  }
  std::error_code unknown;
  const fs::path wanted = fs::absolute(path, unknown);
  for (const std::string& folder : folders_) {
    const UniqueFd root(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const int root_error = errno;
    // A path may start with the folder's configured name or its canonical one.
    std::optional<std::string> rest = RestBehind(folder, wanted);
    if (!rest.has_value()) {
      const fs::path real = fs::canonical(folder, unknown);
      if (!unknown) rest = RestBehind(real, wanted);
    }
    if (!rest.has_value()) continue;
    if (root.get() < 0) {
      error = root_error;
      return NotFound(path, ": --data-root ", folder, " cannot be opened: ", std::strerror(error));
    }
    int fd = -1;
    for (int i = 0; i < kMaxTries; ++i) {
      fd = open_(root.get(), rest->c_str(), flags);
      if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) break;
    }
    if (fd >= 0) return UniqueFd(fd);
    error = errno;
    if (error == ENOSYS || error == EPERM) {  // EPERM: a sandbox without openat2
      return FailedPrecondition(path, ": --data-root needs openat2 (Linux 5.6 or newer), which ",
                                "this kernel or sandbox does not have");
    }
    if (error != EXDEV && error != ELOOP) return CannotOpen(path, error);
  }
  return InvalidArgument(path, ": is outside of --data-root ", absl::StrJoin(folders_, ", "),
                         "; move the file there (links must be relative and stay inside), or "
                         "start the process (or `freshet cluster up`) with --data-root FOLDER");
}

absl::StatusOr<RegularFile> DataRoots::OpenFile(const std::string& path) const {
  RegularFile file;
  FRESHET_ASSIGN_OR_RETURN(file.fd, Open(path, O_RDONLY | O_NONBLOCK));
  struct stat info {};
  if (::fstat(file.fd.get(), &info) != 0) return NotFound(path, ": ", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path, ": not a regular file");
  file.size = static_cast<uint64_t>(info.st_size);
  return file;
}

absl::StatusOr<std::string> DataRoots::ReadFile(const std::string& path, uint64_t max_bytes) const {
  FRESHET_ASSIGN_OR_RETURN(const RegularFile file, OpenFile(path));
  FRESHET_RETURN_IF_ERROR(CheckFileSize(path, file.size, max_bytes));
  std::string contents(file.size, '\0');
  size_t done = 0;
  while (done < contents.size()) {
    const ssize_t got = ::read(file.fd.get(), contents.data() + done, contents.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return NotFound(path, ": cannot be read: ", std::strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  contents.resize(done);
  return contents;
}

bool DataRoots::Exists(const std::string& path) const {
  int error = 0;
  return TryOpen(path, O_PATH, error).ok() || (error != ENOENT && error != ENOTDIR);
}

absl::Status CheckFileSize(const std::string& path, uint64_t size, uint64_t max_bytes) {
  if (size <= max_bytes) return absl::OkStatus();
  return InvalidArgument(path, ": ", size, " bytes, more than the limit of ", max_bytes);
}

}  // namespace freshet
