#ifndef FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_CONFIG_H_
#define FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_CONFIG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/str_cat.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Settings of one process's RedisTrajectoryStore.
struct RedisStoreSettings {
  // For tests: the clock for leases, which must outlive the store and be shared by all members of
  // the job. Null: the server's clock (Redis TIME).
  const Clock* clock = nullptr;
  // If no member performs any operation for this long, Redis is assumed to have been unreachable,
  // and the next operation extends all leases by that time. Zero: never. Absent: a quarter of the
  // lease TTL with the server's clock, never with another clock. Sweep must be called several times
  // within this period, or idle times count as outages.
  std::optional<absl::Duration> outage_threshold;
  // Called after each completed script with its file name and round-trip time, on the calling
  // thread.
  std::function<void(std::string_view script, absl::Duration took)> on_script;
  // Maximum age of the server's memory figures; LeasePrompts and NextBatch refresh them.
  absl::Duration memory_period = absl::Seconds(1);
  // Approximate number of ledger rows per segment that Sweep packs. At least 1.
  int64_t ledger_segment_rows = 4096;
};

// Parameters of a Redis store, written once to {job}:config.
struct RedisStoreConfig {
  StoreOptions options;
  StoreOrigin origin;

  // INVALID_ARGUMENT: invalid options or origin, a job name with characters other than
  // [A-Za-z0-9._-], or an ordinal or version above 2^53, which scripts cannot represent.
  absl::Status Validate() const;
  // {job}: the common key prefix, including the hash tag.
  std::string Prefix() const;
  // Converts between the tokens of TrajectoryStore and those of the scripts. Tokens of an earlier
  // store match no script token.
  std::string ScriptToken(int64_t token) const { return StrCat(token - origin.TokenBase()); }
  int64_t PortToken(int64_t token) const { return token + origin.TokenBase(); }
  // Names and values that the scripts read: constants, and the initial state.
  std::vector<std::pair<std::string, std::string>> ScriptOptions() const;
  std::vector<std::pair<std::string, std::string>> FirstState() const;
};

// Formats `value` so that it round-trips.
std::string ExactText(double value);

constexpr int64_t kMaxScriptInteger = int64_t{1} << 53;

// Format number of the scripts' data, stored with the configuration. Increment it for every change
// to a key or packed record that older or newer scripts would misread. Data without a number counts
// as 1.
constexpr int64_t kRedisStoreFormat = 3;
// Of stores with a success pool, which older programs cannot serve.
constexpr int64_t kRedisReplayFormat = 4;
// Of stores with adaptive rollouts, with or without a success pool.
constexpr int64_t kRedisAdaptiveFormat = 5;

// INVALID_ARGUMENT: not usable as a key prefix.
absl::Status ValidateJobName(const std::string& job);

// A JSON object with fixed keys; equal values give equal text.
std::string RedisStoreConfigToJson(const RedisStoreConfig& config);
// Inverse of RedisStoreConfigToJson. FAILED_PRECONDITION: another format than these; the message
// names it and the fix. DATA_LOSS: other errors, including more than 64 MiB.
absl::StatusOr<RedisStoreConfig> ParseRedisStoreConfig(std::string_view json);
// First difference as "key: STORED stored, ASKED asked"; "" if equal.
std::string FirstDifference(const RedisStoreConfig& stored, const RedisStoreConfig& asked);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_TRAJECTORY_STORE_CONFIG_H_
