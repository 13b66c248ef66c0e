#ifndef FRESHET_SERVICES_SANDBOX_ISOLATION_ROOT_FOLDER_H_
#define FRESHET_SERVICES_SANDBOX_ISOLATION_ROOT_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace freshet::sandbox {

// What is left of `paths`, which are absolute, without those that are below another one. Pure.
std::vector<std::string> WithoutNested(std::vector<std::string> paths);

// Mounts a read-only memory file system at `root`, which is created if absent. It shows /dev/null
// and the paths `readable` (absolute), each at its own path and, if that has links, where they
// lead; other folders in it cannot be listed. Needs the capabilities of EnterMountNamespace.
// NOT_FOUND: a path does not exist. INVALID_ARGUMENT: a path is relative, or is the root.
// UNAVAILABLE: the system refuses a mount, or a folder for it.
absl::Status MakeRootFolder(const std::string& root, const std::vector<std::string>& readable);

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_ISOLATION_ROOT_FOLDER_H_
