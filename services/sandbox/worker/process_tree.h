#ifndef FRESHET_SERVICES_SANDBOX_WORKER_PROCESS_TREE_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_PROCESS_TREE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace freshet::sandbox {

// Whether the kernel lists the children of processes (CONFIG_PROC_CHILDREN).
bool CanListChildren();

// Which processes are meant: those below `roots`, without `except` and what is below them.
struct ProcessTree {
  // In this order: the one that adopts orphans last, so that one that it adopts meanwhile is seen.
  std::vector<pid_t> roots;
  std::vector<pid_t> except;
  // Maximum number of members to look for; bounds the search where a program can start processes
  // faster than they are listed.
  size_t most = std::numeric_limits<size_t>::max();
};

// Parents before children. Stops soon after `most`.
std::vector<pid_t> Members(const ProcessTree& tree);

// Memory of these processes together, with page tables but without that of files; pages that they
// share since a fork count for each. `enough`, in bytes: the limit that the caller checks. In
// gVisor a result of at most `enough` may include pages of files.
int64_t ResidentBytes(const std::vector<pid_t>& processes, int64_t enough);
// Processes and threads of these processes.
int64_t CountTasks(const std::vector<pid_t>& processes);
// Disk space of files that these processes have open and that have no name any more, and what their
// pipes and sockets can hold; each counts for each process. Too much for any limit if it cannot be
// measured: descriptors that cannot be listed, more than can be looked at in time, or a mapping of
// such a file below `folder`, as the kernel shows it: an absolute path without links.
int64_t UnseenBytes(const std::vector<pid_t>& processes, const std::string& folder);

// Kills all of them, and waits for this process's children among them, whose processor time is
// added to `cpu_seconds`. Needs that they start no others meanwhile. INTERNAL: some still exist
// after `patience`.
absl::Status KillAll(const ProcessTree& tree, absl::Duration patience, double& cpu_seconds);

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_PROCESS_TREE_H_
