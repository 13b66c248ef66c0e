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

// The pool of rollouts that a PoolKey is of; none for other roles.
inline std::optional<std::string> PoolOfKey(const std::string& key) {
  constexpr std::string_view kRollout = "rollout/";
  if (key == "rollout") return "default";
  if (!key.starts_with(kRollout)) return std::nullopt;
  return key.substr(kRollout.size());
}

// INVALID_ARGUMENT naming the field: a role that is not scaled (only rollout, reward and env are),
// a pool of another role than rollout, or a number outside of 0..kMaxReplicas.
inline absl::Status CheckScale(const std::string& role, const std::string& pool, int32_t replicas) {
  if (role != "rollout" && role != "reward" && role != "env") {
    return InvalidArgument("role: \"", role.substr(0, 40),
                           "\" cannot be scaled; it must be rollout, reward or env");
  }
  if (!pool.empty() && role != "rollout") {
    return InvalidArgument("pool: only rollouts have pools");
  }
  if (replicas < 0 || replicas > kMaxReplicas) {
    return InvalidArgument("replicas: ", replicas, " is not within 0 and ", kMaxReplicas);
  }
  return absl::OkStatus();
}

// What becomes of workers when fewer are wanted than before.
enum class Surplus {
  kDrains,  // so many, at most, are told to drain
  kStays,   // the number only says how many there are
};

// Changes how many workers a cluster has. Implementations are thread-safe.
class PoolScaler {
 public:
  virtual ~PoolScaler() = default;

  // Asks for `replicas` workers of a role (and pool, for rollouts); returns what was asked for
  // before (0: nothing). Connected workers that are too many are told to drain, but no more than
  // fewer are wanted than before: workers that others run beside those are left alone. Whoever runs
  // the processes starts those that are missing. Does not wait for either. INVALID_ARGUMENT: as of
  // CheckScale.
  virtual absl::StatusOr<int32_t> SetWanted(const std::string& role, const std::string& pool,
                                            int32_t replicas, Surplus surplus) = 0;
  // What is asked for, by PoolKey. Roles that nobody has scaled are absent.
  virtual std::map<std::string, int32_t> Wanted() = 0;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_CLUSTER_POOL_SCALER_H_
