#include "weights/shm/memory_file.h"

#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr off_t kReservedAtOnce = off_t{64} << 20;

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

absl::StatusOr<std::shared_ptr<MappedFile>> CreateFile() {
  const int fd = ::memfd_create("freshet-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return NoMemory("memfd_create");
  return std::make_shared<MappedFile>(fd);
}

std::string PathOf(int fd) { return StrCat("/proc/", ::getpid(), "/fd/", fd); }

// Ends the file with the hash; "": with zeros.
void SetHash(MappedFile& file, std::string_view content_hash) {
  std::byte* hash = file.data() + file.size() - kHashDigits;
  std::memset(hash, 0, kHashDigits);
  std::memcpy(hash, content_hash.data(), content_hash.size());
}

bool AddSeals(const MappedFile& file, int seals) {
  return ::fcntl(file.fd(), F_ADD_SEALS, kFixedSizeSeals | seals) == 0;
}

bool LockAlone(const MappedFile& file) { return ::flock(file.fd(), LOCK_EX | LOCK_NB) == 0; }

WeightBytes Arena(std::shared_ptr<MappedFile> file, size_t size) {
  const std::byte* data = file->data();
  const int fd = file->fd();
  return std::make_shared<const WeightArena>(data, size, std::move(file), fd);
}

// A copy of `bytes` in a new file that nobody can change.
absl::StatusOr<WeightBytes> CopyAndSeal(std::span<const std::byte> bytes) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, CreateFile());
  FRESHET_RETURN_IF_ERROR(WriteAll(file->fd(), bytes));
  if (!AddSeals(*file, F_SEAL_WRITE)) return NoMemory("seal");
  // Map through a read-only descriptor: kernels before 6.7 reject a sealed file's writable one.
  const MappedFile reader(::open(PathOf(file->fd()).c_str(), O_RDONLY | O_CLOEXEC));
  if (reader.fd() < 0 || !file->Map(reader.fd(), bytes.size(), PROT_READ)) return NoMemory("mmap");
  return Arena(std::move(file), bytes.size());
}

// As MemoryFileStager::Reserve, a new file.
absl::StatusOr<std::shared_ptr<MappedFile>> CreateLocked(size_t size, int seal) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, CreateFile());
  size += kHashDigits;
  const auto length = static_cast<off_t>(size);
  if (::ftruncate(file->fd(), length) != 0) return NoMemory("ftruncate");
  if (!file->Map(file->fd(), size, PROT_READ | PROT_WRITE)) return NoMemory("mmap");
  // gVisor accepts seals that it does not know.
  const bool unsealed = !AddSeals(*file, seal) || ::pwrite(file->fd(), "", 1, 0) >= 0;
  if (unsealed || !LockAlone(*file)) return nullptr;
  // Otherwise writing to the mapping without memory would be fatal. In pieces, because a signal may
  // interrupt and undo a call.
  for (off_t begin = 0; begin < length;) {
    const off_t piece = std::min(length - begin, kReservedAtOnce);
    if (::fallocate(file->fd(), 0, begin, piece) == 0) {
      begin += piece;
    } else if (errno != EINTR) {
      return NoMemory("fallocate");
    }
  }
  return file;
}

}  // namespace

absl::StatusOr<std::shared_ptr<MappedFile>> MemoryFileStager::Reserve(size_t size) {
  std::shared_ptr<MappedFile> file;
  for (const std::shared_ptr<MappedFile>& free : files_) {
    if (free.use_count() > 1 || free->size() != size + kHashDigits || !LockAlone(*free)) continue;
    // The copy is made after the last arena's release, so the arena's reads happen before our
    // writes.
    file = free;
    break;
  }
  // Drop the others that no arena refers to.
  std::erase_if(files_, [](const auto& free) { return free.use_count() == 1; });
  if (file != nullptr) return file;
  FRESHET_ASSIGN_OR_RETURN(file, CreateLocked(size, seal_));
  if (file != nullptr) files_.push_back(file);
  return file;
}

absl::StatusOr<WeightBytes> MemoryFileStager::Stage(std::span<const std::byte> source,
                                                    int64_t bucket_bytes,
                                                    WeightManifest& manifest) {
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, Reserve(source.size()));
  if (file == nullptr) {
    HashBuckets(source, bucket_bytes, manifest);
    return CopyAndSeal(source);
  }
  SetHash(*file, "");
  HashBuckets(source, bucket_bytes, manifest, file->data());
  SetHash(*file, manifest.content_hash);
  ::flock(file->fd(), LOCK_UN);
  return Arena(std::move(file), source.size());
}

absl::StatusOr<WeightBytes> InMemoryFile(const WeightBytes& bytes) {
  if (bytes->shared_fd() >= 0) return bytes;
  return CopyAndSeal(*bytes);
}

std::string MemoryFilePath(const WeightArena& bytes) { return PathOf(bytes.shared_fd()); }

}  // namespace freshet
