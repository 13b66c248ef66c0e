#ifndef FRESHET_SERVICES_SANDBOX_WORKER_CONFINED_PROCESS_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_CONFINED_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "services/sandbox/isolation/confine.h"
#include "services/sandbox/isolation/syscall_filter.h"
#include "services/sandbox/worker/python_process.h"

namespace freshet::sandbox {

// A process of a program, as it begins to run.
struct ConfinedProcess {
  pid_t pid = 0;
  UniqueFd process;   // pidfd
  UniqueFd listener;  // of its filter; none with namespaces of its own
  UniqueFd output;    // read ends, which do not block
  UniqueFd error;
};

struct ConfinedStart {
  // An absolute path and arguments; empty: main.py, forked from `python`.
  const std::vector<std::string>& argv;
  const PythonProcess* python;
  std::string_view input;
  int folder;  // to work in
  int rules;   // of FileRules::Make; -1: namespaces, as `confinement` says
  const SyscallFilters& filters;
  FreshetConfinement confinement;
};

// Starts a confined process. UNAVAILABLE or INTERNAL: it cannot be confined; nothing of the program
// has run.
absl::StatusOr<ConfinedProcess> StartConfined(const ConfinedStart& start);

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_CONFINED_PROCESS_H_
