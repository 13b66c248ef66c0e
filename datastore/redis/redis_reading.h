#ifndef FRESHET_DATASTORE_REDIS_REDIS_READING_H_
#define FRESHET_DATASTORE_REDIS_REDIS_READING_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "datastore/redis/redis_client.h"

namespace freshet {

// Redis server state from the INFO sections memory, errorstats, stats and persistence.
struct RedisReading {
  int64_t used_bytes = 0;
  int64_t bound_bytes = 0;  // maxmemory; 0: no limit
  int64_t refused = 0;      // commands rejected for lack of memory, since server start
  int64_t evicted = 0;      // keys evicted for lack of memory, since server start
  // The append-only file is enabled, and its last write and rewrite succeeded.
  bool append_only_ok = false;
};

// Parses INFO output (lines NAME:VALUE). Absent fields keep their defaults. Pure.
RedisReading ParseRedisInfo(std::string_view info);

// From this percentage of maxmemory on, a job gets only one step's groups, and its trainer makes a
// checkpoint after each step to free memory. The rest is reserved for running groups.
constexpr int64_t kPressurePercent = 85;

// Memory use in percent of the limit from kPressurePercent on; otherwise 0, also without a limit.
int64_t PressedPercent(const RedisReading& reading);
// "redis is at 87 % of its memory limit"
std::string PressureText(int64_t percent);

// The server's memory use, read at most once per `period`. Thread-safe.
class RedisMemoryGauge {
 public:
  // `client` must outlive the gauge.
  RedisMemoryGauge(RedisClient& client, absl::Duration period) : client_(client), period_(period) {}

  // PressedPercent of the server; 0 if it does not answer.
  int64_t PressedPercent() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  RedisClient& client_;
  const absl::Duration period_;
  Mutex mu_;
  int64_t percent_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time read_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_READING_H_
