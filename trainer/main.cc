#include <string_view>

#include "base/clock.h"
#include "collective/open_backend.h"
#include "model/gpu.h"
#include "model/program_memory.h"
#include "trainer/policy_learner_factory.h"
#include "trainer/rank_process.h"
#include "trainer/service/trainer_process.h"
#include "weights/cuda/open_device_memory.h"

int main(int argc, char** argv) {
  freshet::ShareHeap();
  if (argc >= 2 && std::string_view(argv[1]) == freshet::kRankCommand) {
    return freshet::RunRankProcess(argc - 1, argv + 1);
  }
  freshet::PolicyLearnerFactory learners(freshet::SystemClock::Get());
  return freshet::RunTrainerProcess(argc, argv, learners, freshet::OpenBackend, {},
                                    freshet::ReadGpuMemory, freshet::OpenGpu);
}
