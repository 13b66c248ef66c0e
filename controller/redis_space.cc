#include "controller/redis_space.h"

#include <utility>

#include "base/str_cat.h"

namespace freshet {
namespace {

double Megabytes(int64_t bytes) { return static_cast<double>(bytes / 100'000) / 10.0; }

}  // namespace

absl::Status RedisSpace::Take(const RedisReading& reading, absl::Time now) {
  const int64_t before = std::exchange(refused_, reading.refused);
  if (before >= 0 && reading.refused > before) refused_at_ = now;
  const bool full = reading.bound_bytes > 0 && reading.used_bytes >= reading.bound_bytes;
  if (!full && now - refused_at_ >= kAfterRefusal) return absl::OkStatus();
  return ResourceExhausted("redis is at its memory limit: ", Megabytes(reading.used_bytes), " of ",
                           Megabytes(reading.bound_bytes),
                           " MB used (maxmemory); give it more, or delete jobs");
}

}  // namespace freshet
