#ifndef FRESHET_TRAINER_SERVICE_TRAINER_PROCESS_H_
#define FRESHET_TRAINER_SERVICE_TRAINER_PROCESS_H_

#include "services/worker/worker_process.h"
#include "trainer/service/learner_factory.h"

namespace freshet {

// main() of a trainer process. `learners` creates its models. Returns the exit code.
int RunTrainerProcess(int argc, char** argv, LearnerFactory& learners,
                      StoreWrapper wrap_store = {});

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_TRAINER_PROCESS_H_
