#include "datastore/redis/redis_datastore.h"

#include <utility>

#include "base/status_macros.h"
#include "datastore/redis/redis_event_log.h"
#include "datastore/redis/redis_trajectory_store.h"

namespace freshet {

absl::StatusOr<RedisDatastore> OpenRedisDatastore(RedisOptions options) {
  RedisDatastore datastore;
  FRESHET_ASSIGN_OR_RETURN(datastore.client, RedisClient::Create(std::move(options)));
  FRESHET_ASSIGN_OR_RETURN(datastore.events, RedisEventLog::Create(datastore.client));
  datastore.open_store =
      [client = datastore.client](
          const std::string& job) -> absl::StatusOr<std::unique_ptr<TrajectoryStore>> {
    return RedisTrajectoryStore::Open(client, job);
  };
  return datastore;
}

}  // namespace freshet
