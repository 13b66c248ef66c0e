#ifndef FRESHET_CLI_CLIENT_CALL_FAULT_H_
#define FRESHET_CLI_CLIENT_CALL_FAULT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/exit_code.h"
#include "cli/client/server_target.h"

namespace freshet {

// The exit code for a call that ended with `status`: 7 when the server was not reached, 8 for a
// deadline, 1 for an error inside of the server, 4 when it refused.
ExitCode CallExitCode(const absl::Status& status);

// What a person is told: one line per error, each ending with what to do about it. Reads the
// google.rpc details: every wrong field, when to try again, who leads. Pure.
std::vector<std::string> CallErrorLines(const absl::Status& status, const ServerTarget& target);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_CALL_FAULT_H_
