#ifndef FRESHET_SERVICES_REWARD_SERVICE_REWARD_PROCESS_H_
#define FRESHET_SERVICES_REWARD_SERVICE_REWARD_PROCESS_H_

#include "services/worker/worker_process.h"

namespace freshet {

// main() of a reward process. Returns the exit code.
int RunRewardProcess(int argc, char** argv, StoreWrapper wrap_store = {});

}  // namespace freshet

#endif  // FRESHET_SERVICES_REWARD_SERVICE_REWARD_PROCESS_H_
