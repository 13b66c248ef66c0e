#ifndef FRESHET_CONTROLLER_AUTOSCALE_POOL_BOUNDS_H_
#define FRESHET_CONTROLLER_AUTOSCALE_POOL_BOUNDS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/autoscale/pool_decision.h"

namespace freshet {

// Bounds of pools that scale by themselves, by name, from texts "POOL=MIN..MAX". INVALID_ARGUMENT
// naming the text: not of that form, MIN above MAX, a MAX of 0 or above kMaxReplicas, a name that
// is no pool's (1 to 63 letters, digits, '-', '_', '.'), or a pool named twice.
absl::StatusOr<std::map<std::string, PoolBounds>> ParsePoolBounds(
    const std::vector<std::string>& texts);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_AUTOSCALE_POOL_BOUNDS_H_
