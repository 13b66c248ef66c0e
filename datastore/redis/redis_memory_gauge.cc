#include "datastore/redis/redis_memory_gauge.h"

#include "base/clock.h"
#include "datastore/redis/redis_reading.h"

namespace freshet {

int64_t RedisMemoryGauge::PressedPercent() {
  {
    MutexLock lock(mu_);
    const absl::Time now = SystemClock::Get().Now();
    if (now - read_ < period_) return percent_;
    read_ = now;
  }
  const absl::StatusOr<RedisReply> info = client_->Command({"INFO", "memory"});
  MemoryPressure pressure;
  if (info.ok()) pressure = DecidePressure(ParseRedisInfo(info->text));
  MutexLock lock(mu_);
  return percent_ = pressure.pressed ? pressure.percent : 0;
}

}  // namespace freshet
