#ifndef FRESHET_WEIGHTS_GRPC_CLUSTER_ROUTE_H_
#define FRESHET_WEIGHTS_GRPC_CLUSTER_ROUTE_H_

#include <string_view>

#include "absl/status/statusor.h"

namespace freshet {

// How a trainer reaches engines in other processes.
enum class ClusterRoute {
  kAuto,     // shared memory if the engine can open it, otherwise the relay
  kShm,      // shared memory only
  kCudaIpc,  // as kAuto, with copies on the trainer's GPU for the engines that compute there
  kRelay,    // chunk streams along a chain
  kNccl,     // broadcasts in the trainer's site; the relay to members that cannot take part, or are
             // late or elsewhere
  kGloo,     // as kNccl
};

// Whether engines of the trainer's host map its memory.
constexpr bool SharesMemory(ClusterRoute route) {
  return route == ClusterRoute::kAuto || route == ClusterRoute::kShm ||
         route == ClusterRoute::kCudaIpc;
}

// Parses weight_sync.transport: "auto", "shm", "cuda_ipc", "grpc_relay", "nccl" or "gloo".
// INVALID_ARGUMENT: any other value.
absl::StatusOr<ClusterRoute> ParseClusterRoute(std::string_view transport);

// As in weight_sync.transport.
const char* RouteName(ClusterRoute route);

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_GRPC_CLUSTER_ROUTE_H_
