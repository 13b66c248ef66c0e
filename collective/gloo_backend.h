#ifndef FRESHET_COLLECTIVE_GLOO_BACKEND_H_
#define FRESHET_COLLECTIVE_GLOO_BACKEND_H_

#include <memory>

#include "collective/communicator_backend.h"

namespace freshet {

// Groups of processes of one user on one host, by Gloo over the loopback interface. They find each
// other through a file in the folder for temporary files, whose name is the secret. Connect does
// not heed `stop`.
std::shared_ptr<CommunicatorBackend> MakeGlooBackend();

// OpenCommunicatorBackend of the programs: "nccl" with GPU 0, and "gloo".
absl::StatusOr<std::shared_ptr<CommunicatorBackend>> OpenBackend(const std::string& name);

}  // namespace freshet

#endif  // FRESHET_COLLECTIVE_GLOO_BACKEND_H_
