#include "weights/shm/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int kSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

// A mapping and its descriptor; either may be absent.
class Mapping {
 public:
  explicit Mapping(int fd) : fd_(fd) {}
  ~Mapping() {
    if (data_ != nullptr) ::munmap(data_, size_);
    CloseFile();
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  int fd() const { return fd_; }
  const std::byte* data() const { return static_cast<const std::byte*>(data_); }
  void CloseFile() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // Maps `size` bytes of `fd`. Returns false with errno set on failure.
  bool Map(int fd, size_t size, int flags) {
    if (size == 0) return true;
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED | flags, fd, 0);
    if (data == MAP_FAILED) return false;
    data_ = data;
    size_ = size;
    return true;
  }

 private:
  int fd_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

absl::Status NoMemory(const char* what) {
  return ResourceExhausted("shared memory: ", what, ": ", std::strerror(errno));
}

absl::Status WriteAll(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return NoMemory("write");
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Mapping>> CreateFile() {
  const int fd = ::memfd_create("freshet-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return NoMemory("memfd_create");
  return std::make_shared<Mapping>(fd);
}

std::string PathOf(int fd) { return StrCat("/proc/", ::getpid(), "/fd/", fd); }

// Seals the filled file and maps it for this process.
absl::StatusOr<WeightBytes> Seal(std::shared_ptr<Mapping> file, size_t size) {
  if (::fcntl(file->fd(), F_ADD_SEALS, kSeals) != 0) return NoMemory("seal");
  // Map through a read-only descriptor: kernels before 6.7 reject a sealed file's writable one.
  const Mapping reader(::open(PathOf(file->fd()).c_str(), O_RDONLY | O_CLOEXEC));
  if (reader.fd() < 0 || !file->Map(reader.fd(), size, 0)) return NoMemory("mmap");
  const std::byte* data = file->data();
  const int fd = file->fd();
  return std::make_shared<const WeightArena>(data, size, std::move(file), fd);
}

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

}  // namespace

absl::StatusOr<WeightBytes> MemoryFileStager::Stage(std::span<const std::byte> source,
                                                    int64_t bucket_bytes,
                                                    WeightManifest& manifest) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<Mapping> file, CreateFile());
  absl::Status status;
  HashBuckets(source, bucket_bytes, manifest, [&](std::span<const std::byte> bucket) {
    if (status.ok()) status = WriteAll(file->fd(), bucket);
  });
  FRESHET_RETURN_IF_ERROR(status);
  return Seal(std::move(file), source.size());
}

absl::StatusOr<WeightBytes> InMemoryFile(const WeightBytes& bytes) {
  if (bytes->shared_fd() >= 0) return bytes;
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<Mapping> file, CreateFile());
  FRESHET_RETURN_IF_ERROR(WriteAll(file->fd(), *bytes));
  return Seal(std::move(file), bytes->size());
}

std::string MemoryFilePath(const WeightArena& bytes) { return PathOf(bytes.shared_fd()); }

absl::StatusOr<WeightBytes> MapMemoryFile(const std::string& path, int64_t size) {
  if (!IsMemoryFilePath(path)) {
    return InvalidArgument("path is not of the form /proc/PID/fd/N: '", path.substr(0, 64), "'");
  }
  const auto file =
      std::make_shared<Mapping>(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file->fd() < 0) {
    return absl::UnimplementedError(StrCat(path, ": cannot be opened: ", std::strerror(errno)));
  }
  struct stat info {};
  const int seals = ::fcntl(file->fd(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(file->fd(), &info) != 0 ||
      info.st_size != size) {
    return absl::UnimplementedError(StrCat(path, ": not a sealed memory file of ", size, " bytes"));
  }
  if (!file->Map(file->fd(), static_cast<size_t>(size), MAP_POPULATE)) return NoMemory("mmap");
  file->CloseFile();
  return std::make_shared<const WeightArena>(file->data(), static_cast<size_t>(size), file);
}

}  // namespace freshet
