#ifndef FRESHET_ROLLOUT_SERVICE_ROLLOUT_PROCESS_H_
#define FRESHET_ROLLOUT_SERVICE_ROLLOUT_PROCESS_H_

#include "base/gpu_memory.h"
#include "collective/communicator_backend.h"
#include "rollout/service/rollout_work.h"
#include "services/worker/worker_process.h"
#include "weights/cuda/device_memory.h"

namespace freshet {

// main() of a rollout process. `make_native` creates its engines, unless --engine names another
// kind; `open_backend` is for jobs with weight_sync.transport nccl or gloo, and for
// --engine-weights nccl; `open_gpu` is for jobs with cuda_ipc. `read_gpus` and `open_gpu` may be
// empty. Returns the exit code.
int RunRolloutProcess(int argc, char** argv, EngineFactory make_native,
                      OpenCommunicatorBackend open_backend, StoreWrapper wrap_store = {},
                      GpuMemoryReader read_gpus = {}, OpenDeviceMemory open_gpu = {});

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_ROLLOUT_PROCESS_H_
