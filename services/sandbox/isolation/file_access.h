#ifndef FRESHET_SERVICES_SANDBOX_ISOLATION_FILE_ACCESS_H_
#define FRESHET_SERVICES_SANDBOX_ISOLATION_FILE_ACCESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace freshet::sandbox {

// The Landlock version of the kernel; 0: none, or it is disabled.
int LandlockVersion();

// The paths that every program may read and execute: the system's programs and libraries, and
// nothing that holds secrets. Those that do not exist are left out.
std::vector<std::string> SystemPaths();

// What a program may do with a path, given as an open descriptor.
struct PathAccess {
  int path = -1;
  bool write = false;  // everything; otherwise reading and executing
};

// Makes Landlock rulesets that allow reading and executing below some paths. Thread-safe.
class FileRules {
 public:
  // UNAVAILABLE: the kernel has no Landlock; NOT_FOUND: a path does not exist.
  static absl::StatusOr<FileRules> Create(const std::vector<std::string>& readable);

  // A ruleset that allows `more` besides, and no other access to files and TCP ports, nor signals
  // to processes outside where the kernel can forbid them.
  absl::StatusOr<UniqueFd> Make(const std::vector<PathAccess>& more) const;

 private:
  explicit FileRules(int version) : version_(version) {}

  int version_;  // of Landlock
  std::vector<UniqueFd> readable_;
  UniqueFd null_;  // /dev/null
};

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_ISOLATION_FILE_ACCESS_H_
