#ifndef FRESHET_DATASTORE_REDIS_REDIS_READING_H_
#define FRESHET_DATASTORE_REDIS_REDIS_READING_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace freshet {

// State of a Redis server: fields of INFO memory, errorstats, stats and persistence.
struct RedisReading {
  int64_t used_bytes = 0;
  int64_t bound_bytes = 0;  // maxmemory; 0: no limit
  int64_t refused = 0;      // commands refused for lack of memory, since the server started
  int64_t evicted = 0;      // keys evicted for lack of memory, since the server started
  // The append-only file is on, and its last write and last rewrite went well.
  bool append_only_ok = false;
};

// Parses the text of INFO, lines of NAME:VALUE; absent fields keep their defaults. Pure.
RedisReading ParseRedisInfo(std::string_view info);

// From this percentage of maxmemory on, a job gets only the groups of one step and its trainer
// makes a checkpoint after each step, which frees memory: the rest is for running groups.
constexpr int64_t kPressurePercent = 85;

struct MemoryPressure {
  bool pressed = false;
  int64_t percent = 0;  // of the limit; 0 without one
  std::string reason;   // set in both cases
};
MemoryPressure DecidePressure(const RedisReading& reading);
// "redis is at 87 % of its memory limit"
std::string PressureText(int64_t percent);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_READING_H_
