#ifndef FRESHET_SERVICES_RUNTIME_REWARD_FLAGS_H_
#define FRESHET_SERVICES_RUNTIME_REWARD_FLAGS_H_

#include <string>

#include "base/command_line.h"

namespace freshet::runtime {

// Where model-written programs run.
struct SandboxFlags {
  std::string address;     // http:// or https://HOST:PORT; "": none
  std::string ca_file;     // for https
  std::string token_file;  // "": none
};

// What the operator of reward workers offers to jobs.
struct RewardFlags {
  std::string python_rewards;  // a loopback HOST:PORT; "": none
  SandboxFlags sandbox;
};

// Adds --python-rewards, --sandbox, --sandbox-ca and --sandbox-token-file. Plaintext is only
// allowed to loopback addresses.
void AddRewardFlags(const Command& app, RewardFlags& flags);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_REWARD_FLAGS_H_
