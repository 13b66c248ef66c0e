#ifndef FRESHET_SERVICES_REWARD_SERVICE_REWARD_PROCESS_H_
#define FRESHET_SERVICES_REWARD_SERVICE_REWARD_PROCESS_H_

#include <functional>
#include <memory>

#include "datastore/trajectory_store.h"

namespace freshet {

// Where a process for tests puts something of its own in. Members may be empty.
struct RewardHooks {
  std::function<std::unique_ptr<TrajectoryStore>(std::unique_ptr<TrajectoryStore>)> wrap_store;
};

// main() of a reward process. Returns the exit code.
int RunRewardProcess(int argc, char** argv, const RewardHooks& hooks = {});

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SERVICE_REWARD_PROCESS_H_
