#ifndef FRESHET_CONTROLLER_AUTOSCALE_POOL_BOUNDS_H_
#define FRESHET_CONTROLLER_AUTOSCALE_POOL_BOUNDS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/autoscale/pool_decision.h"

namespace freshet {

// Parses bounds of autoscaled pools, by name, from texts "POOL=MIN..MAX". INVALID_ARGUMENT naming
// the text: malformed, MIN above MAX, MAX of 0 or above kMaxReplicas, an invalid pool name
// (allowed: 1 to 63 letters, digits, '-', '_', '.'), or a duplicate pool.
absl::StatusOr<std::map<std::string, PoolBounds>> ParsePoolBounds(
    const std::vector<std::string>& texts);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_AUTOSCALE_POOL_BOUNDS_H_
