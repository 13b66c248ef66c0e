#ifndef FRESHET_CLI_MACHINE_MACHINE_FACTS_H_
#define FRESHET_CLI_MACHINE_MACHINE_FACTS_H_

#include <string>

#include "cli/client/session.h"
#include "cli/machine/doctor.h"

namespace freshet {

// Examines this machine, the server of `connection` (for at most 3 s) and, if given, a model
// directory. Facts that cannot be determined keep their default.
MachineFacts GatherMachineFacts(const ConnectionFlags& connection, const std::string& model_path);

// The path of a program on PATH; "" if it is not found.
std::string FindProgram(const std::string& name);

// `port`, or any for 0, if 127.0.0.1:`port` can be listened on, otherwise 0.
int FreePort(int port = 0);

}  // namespace freshet

#endif  // FRESHET_CLI_MACHINE_MACHINE_FACTS_H_
