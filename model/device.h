#ifndef FRESHET_MODEL_DEVICE_H_
#define FRESHET_MODEL_DEVICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "model/torch.h"

namespace freshet {

// The device that a name means: "cpu"; "cuda" or "cuda:N", a GPU; "auto", the first GPU, or the CPU
// where there is none or it cannot be used, for a reason that is logged. The first call for a GPU
// loads LibTorch's CUDA library, which is not linked, so that programs start without it, and sets
// CUBLAS_WORKSPACE_CONFIG unless it is set. Make it before other calls of LibTorch, some of which
// look for GPUs once. INVALID_ARGUMENT: another name. FAILED_PRECONDITION, with the reason: the
// library cannot be loaded, or there is no such GPU, or its compute capability is below 8.0.
// Thread-safe.
absl::StatusOr<at::Device> OpenDevice(const std::string& name);

}  // namespace freshet

#endif  // FRESHET_MODEL_DEVICE_H_
