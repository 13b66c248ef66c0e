#ifndef FRESHET_BASE_CONTAINER_LIMITS_H_
#define FRESHET_BASE_CONTAINER_LIMITS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace freshet {

// Limits of the container that this process runs in.
struct ContainerLimits {
  std::optional<double> cpus;
  std::optional<int64_t> memory_bytes;
};

// Reads the limits of cgroup version 2 or 1 from `root`. Files that are absent or malformed set no
// limit. In a container `root` is its own cgroup; limits of the cgroups around it are not seen.
ContainerLimits ReadContainerLimits(const std::string& root = "/sys/fs/cgroup");

// Bytes of memory that a process may use: what `limits` and the machine have.
int64_t UsableMemory(const ContainerLimits& limits);

// Bytes that a process can still allocate: what the machine has available, and the container's
// cgroup without cached files. 0 if the machine does not say.
int64_t AvailableMemory(const std::string& meminfo = "/proc/meminfo",
                        const std::string& root = "/sys/fs/cgroup");

// Threads that can compute at once: as many as `limits` and the machine's processors allow, and at
// least 1.
int UsableProcessors(const ContainerLimits& limits);

}  // namespace freshet

#endif  // FRESHET_BASE_CONTAINER_LIMITS_H_
