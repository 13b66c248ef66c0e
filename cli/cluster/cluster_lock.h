#ifndef FRESHET_CLI_CLUSTER_CLUSTER_LOCK_H_
#define FRESHET_CLI_CLUSTER_CLUSTER_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace freshet {

// Exclusive lock of a cluster's folder, released by the kernel when the process ends. Not inherited
// by child processes.
class ClusterLock {
 public:
  // FAILED_PRECONDITION: another process holds it; NOT_FOUND: the file cannot be opened.
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
