#ifndef FRESHET_WEIGHTS_SHM_MAPPED_FILE_H_
#define FRESHET_WEIGHTS_SHM_MAPPED_FILE_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

namespace freshet {

// Of every memory file: its size and its seals stay.
inline constexpr int kFixedSizeSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;

// Length of WeightManifest::content_hash, which follows the bytes in a file with
// F_SEAL_FUTURE_WRITE.
inline constexpr size_t kHashDigits = 16;

// Owns a descriptor and a mapping; either may be absent.
class MappedFile {
 public:
  explicit MappedFile(int fd) : fd_(fd) {}
  ~MappedFile() {
    if (data_ != nullptr) ::munmap(data_, size_);
    CloseFile();
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  int fd() const { return fd_; }
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return size_; }
  void CloseFile() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  // Maps the first `size` bytes of `fd`, shared. Call it once. Returns false with errno set on
  // failure.
  bool Map(int fd, size_t size, int protection, int flags = 0) {
    if (size == 0) return true;
    void* data = ::mmap(nullptr, size, protection, MAP_SHARED | flags, fd, 0);
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

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_SHM_MAPPED_FILE_H_
