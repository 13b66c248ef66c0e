#ifndef FRESHET_CLI_CLUSTER_CLUSTER_LOCK_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace freshet {

// The right to run a cluster's folder: a lock that the kernel takes back when the process ends,
// however it ends. Not inherited by programs that it starts.
class ClusterLock {
 public:
  // FAILED_PRECONDITION: another process has it; NOT_FOUND: the file cannot be opened.
  static absl::StatusOr<ClusterLock> Take(const std::string& path);
  ~ClusterLock();
  ClusterLock(ClusterLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ClusterLock& operator=(ClusterLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

 private:
  explicit ClusterLock(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace freshet

#endif  // FRESHET_CLI_CLUSTER_CLUSTER_LOCK_H_
