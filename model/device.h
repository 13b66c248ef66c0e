#ifndef FRESHET_MODEL_DEVICE_H_
#define FRESHET_MODEL_DEVICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "model/torch.h"

namespace freshet {

// The device named "cpu", "cuda", "cuda:N" or "auto": the first GPU, or the CPU where there is none
// or it cannot be used, for a reason that is logged. The first call for CUDA loads LibTorch's CUDA
// library, which is not linked, so that programs start without it. INVALID_ARGUMENT: another name.
// FAILED_PRECONDITION, with the reason: the library cannot be loaded, or there is no such GPU.
// Call it for a GPU before other functions of LibTorch, some of which look for GPUs once.
// Thread-safe.
absl::StatusOr<at::Device> OpenDevice(const std::string& name);

}  // namespace freshet

#endif  // FRESHET_MODEL_DEVICE_H_
