#ifndef FRESHET_CONTROLLER_SERVICE_REDIS_SPACE_H_
#define FRESHET_CONTROLLER_SERVICE_REDIS_SPACE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace freshet {

// What a Redis server says of its state: fields of INFO memory, errorstats, stats and persistence.
struct RedisReading {
  int64_t used_bytes = 0;
  int64_t bound_bytes = 0;  // maxmemory; 0: no limit
  int64_t refused = 0;      // commands refused for lack of memory, since the server began
  int64_t evicted = 0;      // keys thrown away for lack of memory, since the server began
  // The append-only file is on, and its last write and last rewrite went well.
  bool append_only_ok = false;
};

// Reads `info`, lines of NAME:VALUE; what is absent stays as above. Pure.
RedisReading ParseRedisInfo(std::string_view info);

// Adds up a count that begins at 0 again with each new server. Confined to one thread at a time.
class GrowingTotal {
 public:
  // Takes a reading; the total so far.
  int64_t Take(int64_t reading) {
    total_ += reading < last_ ? reading : reading - last_;
    last_ = reading;
    return total_;
  }

 private:
  int64_t last_ = 0;
  int64_t total_ = 0;
};

// Judges readings of one server: it has no room while it holds as much as it may, and for a while
// after it has refused something. Confined to one thread at a time.
class RedisSpace {
 public:
  // Writers that were refused try again every 2 s or more often.
  static constexpr absl::Duration kAfterRefusal = absl::Seconds(5);

  // Takes a reading. RESOURCE_EXHAUSTED with the figures when there is no room.
  absl::Status Take(const RedisReading& reading, absl::Time now);

 private:
  int64_t refused_ = -1;  // at the last reading; -1: none
  absl::Time refused_at_ = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_SERVICE_REDIS_SPACE_H_
