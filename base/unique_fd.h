#ifndef FRESHET_BASE_UNIQUE_FD_H_
#define FRESHET_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace freshet {

// Owns a file descriptor and closes it on destruction. -1: none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() {
    if (fd_ >= 0) ::close(fd_);
  }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

}  // namespace freshet

#endif  // FRESHET_BASE_UNIQUE_FD_H_
