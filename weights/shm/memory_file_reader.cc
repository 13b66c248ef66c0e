#include "weights/shm/memory_file_reader.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// A trainer stages versions in two files in turn.
constexpr size_t kMappings = 2;

// Whether `path` is "/proc/PID/fd/N" with decimal numbers.
bool IsMemoryFilePath(std::string_view path) {
  const auto take = [&path](std::string_view prefix) {
    if (!path.starts_with(prefix)) return false;
    path.remove_prefix(prefix.size());
    const size_t digits = std::min(path.find_first_not_of("0123456789"), path.size());
    if (digits == 0 || digits > 10) return false;
    path.remove_prefix(digits);
    return true;
  };
  return take("/proc/") && take("/fd/") && path.empty();
}

// A lock of an open file, and a mapping of the same file that is read only under the lock.
struct LockedMapping {
  explicit LockedMapping(int fd) : file(fd) {}
  // Closing the file is not enough if a fork has inherited it.
  ~LockedMapping() { ::flock(file.fd(), LOCK_UN); }
  LockedMapping(const LockedMapping&) = delete;
  LockedMapping& operator=(const LockedMapping&) = delete;

  MappedFile file;
  std::shared_ptr<const MappedFile> mapping;
};

absl::Status NoMapping() {
  return ResourceExhausted("shared memory: mmap: ", std::strerror(errno));
}

// After open() has failed.
absl::Status NotOpened(const std::string& path) {
  const bool full = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
  return StatusOf(full ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kUnimplemented,
                  path, ": cannot be opened: ", std::strerror(errno));
}

}  // namespace

std::shared_ptr<const MappedFile> MemoryFileReader::MappingOf(int fd, dev_t device, ino_t inode,
                                                              size_t size) {
  {
    MutexLock lock(mu_);
    const auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& entry) {
      return entry.device == device && entry.inode == inode;
    });
    if (known != known_.end()) {
      std::rotate(known, known + 1, known_.end());
      return known_.back().mapping;
    }
  }
  auto mapping = std::make_shared<MappedFile>(-1);
  if (!mapping->Map(fd, size, PROT_READ, MAP_POPULATE)) return nullptr;
  Known dropped;  // unmapped without the mutex
  MutexLock lock(mu_);
  known_.push_back({device, inode, mapping});
  if (known_.size() > kMappings) {
    dropped = std::move(known_.front());
    known_.erase(known_.begin());
  }
  return mapping;
}

absl::StatusOr<WeightBytes> MemoryFileReader::Map(const std::string& path,
                                                  const WeightManifest& manifest) {
  if (!IsMemoryFilePath(path)) {
    return InvalidArgument("path is not of the form /proc/PID/fd/N: '", path.substr(0, 64), "'");
  }
  const auto locked =
      std::make_shared<LockedMapping>(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const int fd = locked->file.fd();
  if (fd < 0) return NotOpened(path);
  const auto size = static_cast<size_t>(manifest.total_bytes);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  const bool sealed = seals >= 0 && (seals & kFixedSizeSeals) == kFixedSizeSeals;
  const bool constant = sealed && (seals & F_SEAL_WRITE) != 0;
  const bool reusable = sealed && !constant && (seals & F_SEAL_FUTURE_WRITE) != 0;
  const size_t file_size = size + (reusable ? kHashDigits : 0);
  struct stat info {};
  if (!(constant || reusable) || ::fstat(fd, &info) != 0 ||
      info.st_size != static_cast<off_t>(file_size)) {
    return absl::UnimplementedError(StrCat(path, ": not a sealed memory file of ", size, " bytes"));
  }
  if (constant) {
    const auto mapping = std::make_shared<MappedFile>(-1);
    if (!mapping->Map(fd, size, PROT_READ, MAP_POPULATE)) return NoMapping();
    FRESHET_RETURN_IF_ERROR(VerifyBuckets(manifest, {mapping->data(), size}));
    return std::make_shared<const WeightArena>(mapping->data(), size, mapping);
  }
  if (::flock(fd, LOCK_SH | LOCK_NB) != 0) {
    const int error = errno;
    const std::string reason = StrCat(path, ": cannot be locked: ", std::strerror(error));
    return error == EWOULDBLOCK ? absl::UnavailableError(reason) : absl::UnimplementedError(reason);
  }
  locked->mapping = MappingOf(fd, info.st_dev, info.st_ino, file_size);
  if (locked->mapping == nullptr) return NoMapping();
  const std::byte* data = locked->mapping->data();
  const std::string_view hash(reinterpret_cast<const char*>(data + size), kHashDigits);
  if (hash != manifest.content_hash) {
    return DataLoss(path, ": does not hold version ", manifest.policy.version, " (any longer)");
  }
  return std::make_shared<const WeightArena>(data, size, locked);
}

}  // namespace freshet
