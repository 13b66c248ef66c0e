#include "cli/cluster/cluster_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/str_cat.h"

namespace freshet {

absl::StatusOr<ClusterLock> ClusterLock::Take(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return NotFound(path, ": cannot be opened: ", std::strerror(errno));
  ClusterLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
  return FailedPrecondition(path, ": the cluster runs already; freshet cluster status shows it");
}

ClusterLock::~ClusterLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace freshet
