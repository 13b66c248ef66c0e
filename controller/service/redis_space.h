#ifndef FRESHET_CONTROLLER_SERVICE_REDIS_SPACE_H_
#define FRESHET_CONTROLLER_SERVICE_REDIS_SPACE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace freshet {

// What a Redis server says of its memory: fields of INFO memory and INFO errorstats.
struct RedisMemory {
  int64_t used_bytes = 0;
  int64_t bound_bytes = 0;  // maxmemory; 0: no limit
  int64_t refused = 0;      // commands refused for lack of memory, since the server began
};

// Reads `info`, lines of NAME:VALUE; what is absent stays 0. Pure.
RedisMemory ParseRedisMemory(std::string_view info);

// Judges readings of one server: it has no room while it holds as much as it may, and for a while
// after it has refused something. Confined to one thread at a time.
class RedisSpace {
 public:
  // Writers that were refused try again every 2 s or more often.
  static constexpr absl::Duration kAfterRefusal = absl::Seconds(5);

  // Takes a reading. RESOURCE_EXHAUSTED with the figures when there is no room.
  absl::Status Take(const RedisMemory& memory, absl::Time now);

 private:
  int64_t refused_ = -1;  // at the last reading; -1: none
  absl::Time refused_at_ = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_SERVICE_REDIS_SPACE_H_
