#ifndef FRESHET_CONTROLLER_KUBERNETES_SCALE_TARGET_H_
#define FRESHET_CONTROLLER_KUBERNETES_SCALE_TARGET_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace freshet {

constexpr int32_t kMaxGroupSize = 1000;

// A Kubernetes workload with a scale subresource.
struct ScaleTarget {
  enum class Resource { kDeployment, kLeaderWorkerSet };
  Resource resource = Resource::kDeployment;
  std::string name;
  int32_t size = 1;  // workers per replica
  bool operator==(const ScaleTarget&) const = default;
};

// Parses targets by PoolKey from texts "KEY=RESOURCE/NAME". KEY is rollout/POOL, reward or env.
// RESOURCE is deployments or leaderworkersets; the NAME of the latter may end with "*SIZE", the
// workers per group, 1 to kMaxGroupSize. INVALID_ARGUMENT naming the text: malformed, an invalid
// NAME, or a duplicate KEY.
absl::StatusOr<std::map<std::string, ScaleTarget>> ParseScaleTargets(
    const std::vector<std::string>& texts);

// Whether `name` is a valid Kubernetes object name: a DNS subdomain (RFC 1123), up to 253
// lower-case letters, digits, '-' and '.', with a letter or digit at both ends. Such a name needs
// no escaping in a path.
bool IsObjectName(std::string_view name);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_KUBERNETES_SCALE_TARGET_H_
