#ifndef FRESHET_CLI_COMMANDS_LOCAL_PATHS_H_
#define FRESHET_CLI_COMMANDS_LOCAL_PATHS_H_

#include <string>
#include <vector>

#include "freshet/job/v1/job_spec.pb.h"

namespace freshet {

// Jobs name files relative to the user's current folder, which a server does not share. For a
// server on this machine, returns overrides ("model.path=/abs/dir") that make every existing
// relative path absolute. Empty for another machine, which has its own files.
std::vector<std::string> AbsolutePathOverrides(const freshet::job::v1::JobSpec& spec,
                                               const std::string& server_address);

}  // namespace freshet

#endif  // FRESHET_CLI_COMMANDS_LOCAL_PATHS_H_
