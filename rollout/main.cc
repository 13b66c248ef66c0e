#include "collective/open_backend.h"
#include "model/gpu.h"
#include "rollout/service/native_engine_factory.h"
#include "rollout/service/rollout_process.h"
#include "weights/cuda/open_device_memory.h"

int main(int argc, char** argv) {
  return freshet::RunRolloutProcess(argc, argv, freshet::MakeNativeEngine, freshet::OpenBackend, {},
                                    freshet::ReadGpuMemory, freshet::OpenGpu);
}
