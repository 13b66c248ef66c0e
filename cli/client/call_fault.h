#ifndef FRESHET_CLI_CLIENT_CALL_FAULT_H_
#define FRESHET_CLI_CLIENT_CALL_FAULT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/exit_code.h"
#include "cli/client/server_target.h"

namespace freshet {

// Exit code of a call that ended with `status`: 7 if the server was unreachable, 8 for a deadline,
// 1 for an internal server error, 4 if it refused.
ExitCode CallExitCode(const absl::Status& status);

// User-facing error text: one line per error, each ending with the fix. Uses the google.rpc
// details: invalid fields, retry delay, current leader. Pure.
std::vector<std::string> CallErrorLines(const absl::Status& status, const ServerTarget& target);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_CALL_FAULT_H_
