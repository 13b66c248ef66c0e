#ifndef FRESHET_ROLLOUT_SERVICE_ROLLOUT_PROCESS_H_
#define FRESHET_ROLLOUT_SERVICE_ROLLOUT_PROCESS_H_

#include "rollout/service/rollout_work.h"

namespace freshet {

// Where a process for tests puts something of its own in. Members may be empty.
struct RolloutHooks {
  std::function<std::unique_ptr<TrajectoryStore>(std::unique_ptr<TrajectoryStore>)> wrap_store;
};

// main() of a rollout process whose engines are made by `make_engine`. Returns the exit code.
int RunRolloutProcess(int argc, char** argv, EngineFactory make_engine,
                      const RolloutHooks& hooks = {});

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_ROLLOUT_PROCESS_H_
