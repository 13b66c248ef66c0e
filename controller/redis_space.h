#ifndef FRESHET_CONTROLLER_REDIS_SPACE_H_
#define FRESHET_CONTROLLER_REDIS_SPACE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "datastore/redis/redis_reading.h"

namespace freshet {

// Accumulates a counter that restarts at 0 with each new server. Not thread-safe.
class GrowingTotal {
 public:
  // Adds a reading and returns the total.
  int64_t Take(int64_t reading) {
    total_ += reading < last_ ? reading : reading - last_;
    last_ = reading;
    return total_;
  }

 private:
  int64_t last_ = 0;
  int64_t total_ = 0;
};

// Decides from readings of one server whether it has room. It has none while its memory is at the
// limit, and for kAfterRefusal after it refused a write. Not thread-safe.
class RedisSpace {
 public:
  // Refused writers retry at least every 2 s.
  static constexpr absl::Duration kAfterRefusal = absl::Seconds(5);

  // Takes a reading. Returns RESOURCE_EXHAUSTED with the stats if the server has no room.
  absl::Status Take(const RedisReading& reading, absl::Time now);

 private:
  int64_t refused_ = -1;  // at the last reading; -1: no reading yet
  absl::Time refused_at_ = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_REDIS_SPACE_H_
