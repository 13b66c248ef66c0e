#ifndef FRESHET_SERVICES_WORKER_WORKER_BEGIN_H_
#define FRESHET_SERVICES_WORKER_WORKER_BEGIN_H_

#include "absl/status/statusor.h"
#include "datastore/redis/redis_datastore.h"
#include "services/runtime/worker_flags.h"

namespace freshet {

// What every worker process that works on jobs begins with.
struct WorkerBegin {
  runtime::WorkerAgentOptions agent;
  RedisDatastore datastore;
};

// Timeouts and waits between connects, scaled.
RedisOptions Scaled(RedisOptions options, double time_scale);

// Out of the command line. Opens no connection. INVALID_ARGUMENT or NOT_FOUND, naming the flag.
absl::StatusOr<WorkerBegin> BeginWorker(const runtime::WorkerFlags& flags, cluster::v1::Role role);

}  // namespace freshet

#endif  // FRESHET_SERVICES_WORKER_WORKER_BEGIN_H_
