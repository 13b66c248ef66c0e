#include "controller/service/redis_job_stores.h"

#include "datastore/redis/redis_trajectory_store.h"
#include "services/base/status_macros.h"

namespace freshet {

absl::StatusOr<std::shared_ptr<TrajectoryStore>> RedisJobStores::Find(const std::string& job) {
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<RedisTrajectoryStore> store,
                           RedisTrajectoryStore::Open(client_, job));
  return std::shared_ptr<TrajectoryStore>(std::move(store));
}

absl::StatusOr<std::shared_ptr<TrajectoryStore>> RedisJobStores::Open(const StoreOptions& options) {
  // A store that is there may have been made anew by a fork: it counts as it is.
  absl::StatusOr<std::shared_ptr<TrajectoryStore>> found = Find(options.job);
  if (found.status().code() != absl::StatusCode::kNotFound) return found;
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<RedisTrajectoryStore> store,
                           RedisTrajectoryStore::Create(client_, options, StoreOrigin()));
  return std::shared_ptr<TrajectoryStore>(std::move(store));
}

absl::Status RedisJobStores::Delete(const std::string& job) {
  FRESHET_RETURN_IF_ERROR(RedisTrajectoryStore::Delete(*client_, job));
  return DeleteJobKeys(*client_, job).status();
}

}  // namespace freshet
