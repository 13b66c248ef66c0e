#ifndef FRESHET_CONTROLLER_REDIS_SPACE_H_
#define FRESHET_CONTROLLER_REDIS_SPACE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "datastore/redis/redis_reading.h"

namespace freshet {

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

  // Takes a reading. RESOURCE_EXHAUSTED with the stats when there is no room.
  absl::Status Take(const RedisReading& reading, absl::Time now);

 private:
  int64_t refused_ = -1;  // at the last reading; -1: none
  absl::Time refused_at_ = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_REDIS_SPACE_H_
