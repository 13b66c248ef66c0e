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

// Parameters of a Redis store, written once to {job}:config.
struct RedisStoreConfig {
  StoreOptions options;
  StoreOrigin origin;

  // INVALID_ARGUMENT: invalid options or origin, a job name with characters other than
  // [A-Za-z0-9._-], or an ordinal or version above 2^53, which scripts cannot represent.
  absl::Status Validate() const;
  // {job}: the common key prefix, including the hash tag.
  std::string Prefix() const;
  // Names and values that the scripts read: constants, and the initial state.
  std::vector<std::pair<std::string, std::string>> ScriptOptions() const;
  std::vector<std::pair<std::string, std::string>> FirstState() const;
};

constexpr int64_t kMaxScriptInteger = int64_t{1} << 53;

// Format number of the scripts' data, stored with the configuration. Increment it for every change
// to a key or packed record that older or newer scripts would misread. Data without a number counts
// as 1.
constexpr int64_t kRedisStoreFormat = 2;

// INVALID_ARGUMENT: not usable as a key prefix.
absl::Status ValidateJobName(const std::string& job);

// A JSON object with fixed keys; equal values give equal text.
std::string RedisStoreConfigToJson(const RedisStoreConfig& config);
// Inverse of RedisStoreConfigToJson. FAILED_PRECONDITION: another format than kRedisStoreFormat;
// the message names both and the fix. DATA_LOSS: other errors, including more than 64 MiB.
absl::StatusOr<RedisStoreConfig> ParseRedisStoreConfig(std::string_view json);
// First difference as "key: STORED stored, ASKED asked"; "" if equal.
std::string FirstDifference(const RedisStoreConfig& stored, const RedisStoreConfig& asked);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_CONFIG_H_
