#ifndef FRESHET_SERVICES_SANDBOX_WORKER_COMMAND_RUNNER_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_COMMAND_RUNNER_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "freshet/sandbox/v1/sandbox.pb.h"
#include "services/sandbox/isolation/file_access.h"
#include "services/sandbox/isolation/syscall_filter.h"
#include "services/sandbox/worker/program_folder.h"
#include "services/sandbox/worker/python_process.h"

namespace freshet::sandbox {

// Limits of every command. Time is given with each.
struct CommandLimits {
  int64_t tasks = 0;  // processes and threads that it may start; with namespaces: have at a time
  int64_t memory_bytes = 0;  // resident, of all its processes
  int64_t folder_bytes = 0;  // of its files, also of those without a name
  int64_t output_bytes = 0;  // of standard output, and of standard error
};

struct Command {
  // An absolute path and arguments; empty: main.py in the folder, in the warm Python process.
  std::vector<std::string> argv;
  std::string_view input;                // standard input
  const ProgramFolder* folder;           // to work in
  const ProgramFolder* built = nullptr;  // another one that it may read
  bool limit_address_space = true;       // of each process, to the limit of memory
  absl::Duration time;
  int64_t output_bytes = 0;  // of each output, instead of the limit of all commands; 0: that one
};

// What keeps a program from other files and processes: Landlock and the worker's supervision, or a
// folder of MakeRootFolder, which becomes its root in namespaces of its own.
using Confinement = std::variant<FileRules, std::string>;

// Runs one confined command at a time and ends everything that it has started. The process must
// have one thread, and adopt orphans.
class CommandRunner {
 public:
  // `python` may be null if no command needs it; it must outlive the runner.
  CommandRunner(SyscallFilters filters, Confinement confinement, const PythonProcess* python,
                const CommandLimits& limits);

  // Where commands find the folder `built`.
  std::string PathInside(const ProgramFolder& built) const;
  const CommandLimits& limits() const { return limits_; }
  // INTERNAL or UNAVAILABLE: the sandbox failed, and must not be used again.
  absl::StatusOr<sandbox::v1::CommandResult> Run(const Command& command) const;

 private:
  const SyscallFilters filters_;
  const Confinement confinement_;
  const PythonProcess* const python_;
  const CommandLimits limits_;
};

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_COMMAND_RUNNER_H_
