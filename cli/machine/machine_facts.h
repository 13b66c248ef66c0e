#ifndef FRESHET_CLI_MACHINE_MACHINE_FACTS_H_
#define FRESHET_CLI_MACHINE_MACHINE_FACTS_H_

#include <string>

#include "cli/client/session.h"
#include "cli/machine/doctor.h"

namespace freshet {

// Looks at this machine, at the server of `connection` (for at most 3 s) and, when it is named, at
// a model directory. What cannot be found out stays as it is in an empty MachineFacts.
MachineFacts GatherMachineFacts(const ConnectionFlags& connection, const std::string& model_path);

// The path of a program on PATH; "" when it is not there.
std::string FindProgram(const std::string& name);

// Can 127.0.0.1:`port` be listened on?
bool PortIsFree(int port);

}  // namespace freshet

#endif  // FRESHET_CLI_MACHINE_MACHINE_FACTS_H_
