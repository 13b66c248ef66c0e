#ifndef FRESHET_BENCH_DATASTORE_REDIS_SET_H_
#define FRESHET_BENCH_DATASTORE_REDIS_SET_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace freshet {

// Baseline: pipelined SETs of fixed-size values to distinct keys with hiredis, over several
// concurrent connections.
struct RedisSetOptions {
  std::string host = "127.0.0.1";
  int port = 6379;
  int64_t sets = 20'480;
  int64_t value_bytes = 0;
  int connections = 4;
  int depth = 16;  // commands per pipeline
};

struct RedisSetResult {
  int64_t sets = 0;
  double seconds = 0;
  double client_cpu_seconds = 0;
  double server_cpu_seconds = 0;
};

// Empties the server at the end.
absl::StatusOr<RedisSetResult> RunRedisSet(const RedisSetOptions& options);

}  // namespace freshet

#endif  // FRESHET_BENCH_DATASTORE_REDIS_SET_H_
