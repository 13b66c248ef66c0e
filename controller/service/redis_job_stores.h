#ifndef FRESHET_CONTROLLER_SERVICE_REDIS_JOB_STORES_H_
#define FRESHET_CONTROLLER_SERVICE_REDIS_JOB_STORES_H_

#include <memory>
#include <string>
#include <utility>

#include "controller/jobs/job_ports.h"
#include "datastore/redis/redis_client.h"

namespace freshet {

// The jobs' stores in Redis. Thread-safe.
class RedisJobStores final : public JobStores {
 public:
  explicit RedisJobStores(std::shared_ptr<RedisClient> client) : client_(std::move(client)) {}

  absl::StatusOr<std::shared_ptr<TrajectoryStore>> Open(const StoreOptions& options) override;
  absl::StatusOr<std::shared_ptr<TrajectoryStore>> Find(const std::string& job) override;
  absl::Status Delete(const std::string& job) override;

 private:
  const std::shared_ptr<RedisClient> client_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_SERVICE_REDIS_JOB_STORES_H_
