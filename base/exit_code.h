#ifndef FRESHET_BASE_EXIT_CODE_H_
#define FRESHET_BASE_EXIT_CODE_H_

#include "absl/status/status.h"

namespace freshet {

// Exit codes of all commands; scripts rely on them.
enum ExitCode : int {
  kExitDone = 0,
  kExitInternal = 1,  // internal error, or a violation found
  kExitCommandLine = 2,
  kExitContent = 3,  // content of a named file or directory, of --set, or a full disk
  kExitRefused = 4,  // by the server
  kExitJobFailed = 5,
  kExitJobCancelled = 6,
  kExitNoConnection = 7,
  kExitTimeout = 8,
  kExitInterrupted = 130,  // second Ctrl-C
};

// For errors about what a user named: everything but an error of our own is its content.
ExitCode ContentExitCode(const absl::Status& status);

// Prints the error's lines to stderr, "freshet: " before each, at most 5 and "and N more".
void PrintError(const absl::Status& status);

}  // namespace freshet

#endif  // FRESHET_BASE_EXIT_CODE_H_
