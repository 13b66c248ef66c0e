#ifndef FRESHET_CONTROLLER_REDIS_JOB_STORES_H_
#define FRESHET_CONTROLLER_REDIS_JOB_STORES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "controller/jobs/driver/job_ports.h"
#include "controller/redis_space.h"
#include "datastore/redis/redis_client.h"

namespace freshet {

// Job stores in Redis. Thread-safe.
class RedisJobStores final : public JobStores {
 public:
  // Wraps every store that is returned; may be empty.
  using Wrap =
      std::function<std::unique_ptr<TrajectoryStore>(std::unique_ptr<TrajectoryStore> store)>;

  explicit RedisJobStores(std::shared_ptr<RedisClient> client, Wrap wrap = nullptr)
      : client_(std::move(client)), wrap_(std::move(wrap)) {}

  absl::StatusOr<std::shared_ptr<TrajectoryStore>> Open(const StoreOptions& options) override;
  absl::StatusOr<std::shared_ptr<TrajectoryStore>> Find(const std::string& job) override;
  absl::Status Delete(const JobRemoval& removal) override;
  absl::Status Free(const JobRemoval& removal, bool resumable) override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status CheckSpace() override ABSL_LOCKS_EXCLUDED(mu_);

  // The last reading by CheckSpace; empty before the first one. `evicted` accumulates across server
  // restarts.
  std::optional<RedisReading> reading() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  std::shared_ptr<TrajectoryStore> Wrapped(std::unique_ptr<TrajectoryStore> store) const;

  const std::shared_ptr<RedisClient> client_;
  const Wrap wrap_;
  mutable Mutex mu_;
  bool looking_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time looked_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::optional<RedisReading> reading_ ABSL_GUARDED_BY(mu_);
  GrowingTotal evicted_ ABSL_GUARDED_BY(mu_);
  RedisSpace space_ ABSL_GUARDED_BY(mu_);
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int64_t> freed_ ABSL_GUARDED_BY(mu_);  // generation by job
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_REDIS_JOB_STORES_H_
