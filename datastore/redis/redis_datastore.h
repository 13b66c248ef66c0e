#ifndef FRESHET_DATASTORE_REDIS_REDIS_DATASTORE_H_
#define FRESHET_DATASTORE_REDIS_REDIS_DATASTORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "datastore/event_log.h"
#include "datastore/redis/redis_client.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// A worker's access to its cluster's datastore. Thread-safe.
struct RedisDatastore {
  std::shared_ptr<RedisClient> client;
  std::unique_ptr<EventLog> events;
  StoreOpener open_store;  // calls RedisTrajectoryStore::Open
};

// Does not connect. INVALID_ARGUMENT: bad options.
absl::StatusOr<RedisDatastore> OpenRedisDatastore(RedisOptions options);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_DATASTORE_H_
