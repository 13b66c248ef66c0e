#ifndef FRESHET_SERVICES_SANDBOX_WORKER_SUCCEEDED_H_
#define FRESHET_SERVICES_SANDBOX_WORKER_SUCCEEDED_H_

#include "freshet/sandbox/v1/sandbox.pb.h"

namespace freshet::sandbox {

// Whether a command ended by itself, with exit code 0.
inline bool Succeeded(const v1::CommandResult& result) {
  return result.end() == v1::CommandResult::END_EXITED && result.exit_code() == 0;
}

}  // namespace freshet::sandbox

#endif  // FRESHET_SERVICES_SANDBOX_WORKER_SUCCEEDED_H_
