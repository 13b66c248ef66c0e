#ifndef FRESHET_SERVICES_SANDBOX_WORKER_PROGRAM_RUNNER_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_PROGRAM_RUNNER_H_

#include <string>

#include "absl/status/statusor.h"
#include "freshet/sandbox/v1/sandbox.pb.h"
#include "services/sandbox/worker/command_runner.h"
#include "services/sandbox/worker/languages.h"

namespace freshet::sandbox {

// Compiles and runs programs, one at a time, in folders of their own.
class ProgramRunner {
 public:
  // `parent`: folder for the programs' folders.
  ProgramRunner(std::string parent, std::string python, const CommandRunner& runner)
      : parent_(std::move(parent)), python_(std::move(python)), runner_(runner) {}

  // Always has the program's nonce. After `error` this object must not be used again.
  v1::Outcome Run(const v1::Program& program) const;

 private:
  // INVALID_ARGUMENT: the request is bad. Other errors: the sandbox failed.
  absl::Status Fill(const v1::Program& program, v1::Outcome& outcome) const;
  absl::StatusOr<std::unique_ptr<ProgramFolder>> Prepare(const v1::Program& program,
                                                         const Language& language) const;

  const std::string parent_;
  const std::string python_;
  const CommandRunner& runner_;
};

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_PROGRAM_RUNNER_H_
