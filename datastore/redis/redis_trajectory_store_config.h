#ifndef FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_CONFIG_H_
#define FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// What a store in Redis is created with; written once, under {job}:config.
struct RedisStoreConfig {
  StoreOptions options;
  StoreOrigin origin;

  // INVALID_ARGUMENT: options or an origin that do not validate, a job name with characters other
  // than [A-Za-z0-9._-], or an ordinal or version above 2^53, which a script cannot count.
  absl::Status Validate() const;
  // {job}: the common part of all keys, with the hash tag.
  std::string Prefix() const;
  // Names and values that the scripts read: those that stay, and the state of a store that has just
  // begun.
  std::vector<std::pair<std::string, std::string>> ScriptOptions() const;
  std::vector<std::pair<std::string, std::string>> FirstState() const;
};

constexpr int64_t kMaxScriptInteger = int64_t{1} << 53;

// Number of the format of what the scripts keep, written with the configuration. It grows with
// every change of a key or a packed record that an older script or a newer one would misread; what
// was written before formats had numbers counts as 1.
constexpr int64_t kRedisStoreFormat = 2;

// INVALID_ARGUMENT for a name that cannot be a job's key prefix.
absl::Status ValidateJobName(const std::string& job);

// One JSON object with fixed keys, the same text for the same values.
std::string RedisStoreConfigToJson(const RedisStoreConfig& config);
// Inverse. FAILED_PRECONDITION for another format than kRedisStoreFormat, naming both and what to
// do; DATA_LOSS for anything else, more than 64 MiB included.
absl::StatusOr<RedisStoreConfig> ParseRedisStoreConfig(std::string_view json);
// "key: STORED stored, ASKED asked" of the first difference; "" when there is none.
std::string FirstDifference(const RedisStoreConfig& stored, const RedisStoreConfig& asked);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_CONFIG_H_
