#ifndef FRESHET_COLLECTIVE_OPEN_BACKEND_H_
#define FRESHET_COLLECTIVE_OPEN_BACKEND_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "collective/communicator_backend.h"

namespace freshet {

// The OpenCommunicatorBackend of the programs: "nccl" with GPU 0, and "gloo". Thread-safe.
absl::StatusOr<std::shared_ptr<CommunicatorBackend>> OpenBackend(const std::string& name);

}  // namespace freshet

#endif  // FRESHET_COLLECTIVE_OPEN_BACKEND_H_
