#ifndef FRESHET_SERVICES_SANDBOX_ISOLATION_ROOT_FOLDER_H_
#define FRESHET_SERVICES_SANDBOX_ISOLATION_ROOT_FOLDER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace freshet::sandbox {

// What is left of `paths`, which are absolute, without those that are below another one. Pure.
std::vector<std::string> WithoutNested(std::vector<std::string> paths);

// Makes a folder of memory at `root`, an empty folder, in which only `readable`, absolute paths of
// this process, are mounted where they are here, and /dev/null. All of it is read-only, and the
// folders in between cannot be listed. Needs the capabilities of EnterMountNamespace.
// UNAVAILABLE: the system refuses it.
absl::Status MakeRootFolder(const std::string& root, const std::vector<std::string>& readable);

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_ISOLATION_ROOT_FOLDER_H_
