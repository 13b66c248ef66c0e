#ifndef FRESHET_BENCH_DATASTORE_REDIS_SET_H_
#define FRESHET_BENCH_DATASTORE_REDIS_SET_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace freshet {

// The yardstick: hiredis sends SET of values of one size to keys that are all different, in
// pipelines, from several connections at once.
struct RedisSetOptions {
  std::string host = "127.0.0.1";
  int port = 6379;
  int64_t sets = 20'480;
  int64_t value_bytes = 0;
  int connections = 4;
  int depth = 16;  // commands of a pipeline
};

struct RedisSetResult {
  int64_t sets = 0;
  double seconds = 0;
  double client_cpu_seconds = 0;
  double server_cpu_seconds = 0;
};

// Leaves the server empty.
absl::StatusOr<RedisSetResult> RunRedisSet(const RedisSetOptions& options);

}  // namespace freshet

#endif  // FRESHET_BENCH_DATASTORE_REDIS_SET_H_
