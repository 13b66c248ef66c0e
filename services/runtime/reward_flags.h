#ifndef FRESHET_SERVICES_RUNTIME_REWARD_FLAGS_H_
#define FRESHET_SERVICES_RUNTIME_REWARD_FLAGS_H_

#include <string>

#include "base/command_line.h"

namespace freshet::runtime {

// Adds --python-rewards: a loopback address, or "" for none.
void AddPythonRewardsFlag(const Command& app, std::string& address);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_REWARD_FLAGS_H_
