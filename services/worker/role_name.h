#ifndef FRESHET_SERVICES_WORKER_ROLE_NAME_H_
#define FRESHET_SERVICES_WORKER_ROLE_NAME_H_

#include "freshet/cluster/v1/worker_service.pb.h"

namespace freshet {

// Short name of a role, such as "rollout", used in binaries, metrics and logs. "unknown": not a
// role.
inline const char* RoleName(cluster::v1::Role role) {
  switch (role) {
    case cluster::v1::ROLE_CONTROLLER:
      return "controller";
    case cluster::v1::ROLE_ROLLOUT:
      return "rollout";
    case cluster::v1::ROLE_REWARD:
      return "reward";
    case cluster::v1::ROLE_ENV:
      return "env";
    case cluster::v1::ROLE_TRAINER:
      return "trainer";
    default:
      return "unknown";
  }
}

}  // namespace freshet

#endif  // FRESHET_SERVICES_WORKER_ROLE_NAME_H_
