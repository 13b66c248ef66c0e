#ifndef FRESHET_CLI_COMMANDS_LOCAL_PATHS_H_
#define FRESHET_CLI_COMMANDS_LOCAL_PATHS_H_

#include <string>
#include <vector>

#include "freshet/job/v1/job_spec.pb.h"

namespace freshet {

// A job names files relative to the folder in which the user stands, a server does not stand there.
// For a server on this machine: the overrides ("model.path=/abs/dir") that make every relative path
// which exists here absolute. None for another machine, whose files are its own.
std::vector<std::string> AbsolutePathOverrides(const freshet::job::v1::JobSpec& spec,
                                               const std::string& server_address);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_LOCAL_PATHS_H_
