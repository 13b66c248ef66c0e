#ifndef FRESHET_CONTROLLER_CLUSTER_POOL_SCALER_H_
#define FRESHET_CONTROLLER_CLUSTER_POOL_SCALER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/str_cat.h"

namespace freshet {

constexpr int32_t kMaxReplicas = 1000;

// "rollout" for the pools "" and "default", else "rollout/POOL"; "reward", "env".
inline std::string PoolKey(const std::string& role, const std::string& pool) {
  return pool.empty() || pool == "default" ? role : role + "/" + pool;
}

// The rollout pool of a PoolKey; none for other roles.
inline std::optional<std::string> PoolOfKey(const std::string& key) {
  constexpr std::string_view kRollout = "rollout/";
  if (key == "rollout") return "default";
  if (!key.starts_with(kRollout)) return std::nullopt;
  return key.substr(kRollout.size());
}

// INVALID_ARGUMENT naming the field: a role that cannot be scaled (only rollout, reward and env
// can), a pool for a role other than rollout, or a number outside 0..kMaxReplicas.
inline absl::Status CheckScale(const std::string& role, const std::string& pool, int32_t replicas) {
  if (role == "model") {
    return InvalidArgument(
        "role: model servers are not scaled: freshet cluster up runs one for each --model-server");
  }
  if (role != "rollout" && role != "reward" && role != "env") {
    return InvalidArgument("role: \"", role.substr(0, 40),
                           "\" cannot be scaled; it must be rollout, reward or env");
  }
  if (!pool.empty() && role != "rollout") {
    return InvalidArgument("pool: only rollouts have pools");
  }
  if (replicas < 0 || replicas > kMaxReplicas) {
    return InvalidArgument("replicas: ", replicas, " is not between 0 and ", kMaxReplicas);
  }
  return absl::OkStatus();
}

// What happens to surplus workers when the number is lowered.
enum class Surplus {
  kDrains,  // at most the difference is told to drain
  kStays,   // the number is informational only
};

// Changes the number of workers of a cluster. Implementations are thread-safe.
class PoolScaler {
 public:
  virtual ~PoolScaler() = default;

  // Requests `replicas` workers of a role (and pool, for rollouts). Returns the number requested
  // before (0 if none). Surplus connected workers are told to drain, but no more than the
  // reduction, so that workers started by others are left alone. The process manager starts missing
  // ones. Does not wait for either. INVALID_ARGUMENT: see CheckScale.
  virtual absl::StatusOr<int32_t> SetWanted(const std::string& role, const std::string& pool,
                                            int32_t replicas, Surplus surplus) = 0;
  // Requested numbers by PoolKey. Roles that were never scaled are absent.
  virtual std::map<std::string, int32_t> Wanted() = 0;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_CLUSTER_POOL_SCALER_H_
