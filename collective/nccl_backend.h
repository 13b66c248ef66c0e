#ifndef FRESHET_COLLECTIVE_NCCL_BACKEND_H_
#define FRESHET_COLLECTIVE_NCCL_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "collective/communicator_backend.h"
#include "collective/nccl_library.h"

namespace freshet {

// Groups of processes with a GPU each, by NCCL. NCCL encrypts nothing. `device` is CUDA's number of
// this process's GPU. UNIMPLEMENTED: NCCL or the CUDA runtime cannot be loaded, or there is no such
// GPU.
absl::StatusOr<std::shared_ptr<CommunicatorBackend>> OpenNcclBackend(
    const NcclLibraryPaths& paths = {}, int device = 0);

}  // namespace freshet

#endif  // FRESHET_COLLECTIVE_NCCL_BACKEND_H_
