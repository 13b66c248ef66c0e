#include "weights/grpc/cluster_route.h"

#include "base/str_cat.h"

namespace freshet {

absl::StatusOr<ClusterRoute> ParseClusterRoute(std::string_view transport) {
  for (const ClusterRoute route :
       {ClusterRoute::kAuto, ClusterRoute::kShm, ClusterRoute::kCudaIpc, ClusterRoute::kRelay,
        ClusterRoute::kNccl, ClusterRoute::kGloo}) {
    if (transport == RouteName(route)) return route;
  }
  return InvalidArgument("weight_sync.transport is '", transport,
                         "'; a cluster takes auto, shm, cuda_ipc, grpc_relay, nccl or gloo");
}

const char* RouteName(ClusterRoute route) {
  switch (route) {
    case ClusterRoute::kAuto:
      return "auto";
    case ClusterRoute::kShm:
      return "shm";
    case ClusterRoute::kCudaIpc:
      return "cuda_ipc";
    case ClusterRoute::kRelay:
      return "grpc_relay";
    case ClusterRoute::kNccl:
      return "nccl";
    case ClusterRoute::kGloo:
      return "gloo";
  }
  return "";
}

}  // namespace freshet
