#ifndef FRESHET_DATASTORE_REDIS_REDIS_MEMORY_GAUGE_H_
#define FRESHET_DATASTORE_REDIS_REDIS_MEMORY_GAUGE_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "datastore/redis/redis_client.h"

namespace freshet {

// The server's memory use, read at most once per `period`. Thread-safe.
class RedisMemoryGauge {
 public:
  RedisMemoryGauge(std::shared_ptr<RedisClient> client, absl::Duration period)
      : client_(std::move(client)), period_(period) {}

  // Memory use in percent of the server's limit if DecidePressure says `pressed`; otherwise 0, also
  // if the server does not answer.
  int64_t PressedPercent() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::shared_ptr<RedisClient> client_;
  const absl::Duration period_;
  Mutex mu_;
  int64_t percent_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time read_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_MEMORY_GAUGE_H_
