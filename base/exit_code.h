#ifndef FRESHET_BASE_EXIT_CODE_H_
#define FRESHET_BASE_EXIT_CODE_H_

#include "absl/status/status.h"

namespace freshet {

// Exit codes of all commands. Scripts rely on them.
enum ExitCode : int {
  kExitDone = 0,
  kExitInternal = 1,  // internal error, or a violation was found
  kExitCommandLine = 2,
  kExitContent = 3,  // bad content of a named file, directory or --set, or disk or memory full
  kExitRefused = 4,  // by the server
  kExitJobFailed = 5,
  kExitJobCancelled = 6,
  kExitNoConnection = 7,
  kExitTimeout = 8,
  kExitInterrupted = 130,  // second Ctrl-C
};

// Exit code for an error about user input: kExitInternal for INTERNAL, otherwise kExitContent.
ExitCode ContentExitCode(const absl::Status& status);

// Prints the error to stderr, "freshet: " before each line: at most 5 lines, then "and N more".
void PrintError(const absl::Status& status);
// Does both.
ExitCode FailContent(const absl::Status& status);

// Installs a terminate handler: a std::bad_alloc that no thread catches ends the process with
// "freshet: out of memory" on stderr and kExitContent, without a core dump. The former handler gets
// all else. A second call has no effect. Not thread-safe: call it before threads start.
void ExitWhenOutOfMemory();

}  // namespace freshet

#endif  // FRESHET_BASE_EXIT_CODE_H_
