#ifndef FRESHET_TRAINER_SERVICE_TRAINER_PROCESS_H_
#define FRESHET_TRAINER_SERVICE_TRAINER_PROCESS_H_

#include "base/gpu_memory.h"
#include "collective/communicator_backend.h"
#include "services/worker/worker_process.h"
#include "trainer/service/learner_factory.h"
#include "weights/cuda/device_memory.h"

namespace freshet {

// main() of a trainer process. `learners` creates its models; `open_backend` is for jobs with
// weight_sync.transport nccl or gloo, `open_gpu` for those with cuda_ipc. `read_gpus` and
// `open_gpu` may be empty. Returns the exit code.
int RunTrainerProcess(int argc, char** argv, LearnerFactory& learners,
                      const OpenCommunicatorBackend& open_backend, StoreWrapper wrap_store = {},
                      GpuMemoryReader read_gpus = {}, const OpenDeviceMemory& open_gpu = {});

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_TRAINER_PROCESS_H_
