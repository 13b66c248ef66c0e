#ifndef FRESHET_TRAINER_SERVICE_TRAINER_PROCESS_H_
#define FRESHET_TRAINER_SERVICE_TRAINER_PROCESS_H_

#include <functional>
#include <memory>

#include "datastore/trajectory_store.h"
#include "trainer/learner_factory.h"

namespace freshet {

// Where a process for tests puts something of its own in. Members may be empty.
struct TrainerHooks {
  std::function<std::unique_ptr<TrajectoryStore>(std::unique_ptr<TrajectoryStore>)> wrap_store;
};

// main() of a trainer process whose models are made by `learners`. Returns the exit code.
int RunTrainerProcess(int argc, char** argv, LearnerFactory& learners,
                      const TrainerHooks& hooks = {});

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_TRAINER_PROCESS_H_
