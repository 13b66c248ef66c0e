#include "controller/service/redis_job_stores.h"

#include "datastore/redis/redis_trajectory_store.h"
#include "services/base/clock.h"
#include "services/base/status_macros.h"

namespace freshet {
namespace {

constexpr absl::Duration kLookPeriod = absl::Milliseconds(200);

}  // namespace

std::shared_ptr<TrajectoryStore> RedisJobStores::Wrapped(
    std::unique_ptr<TrajectoryStore> store) const {
  return wrap_ ? wrap_(std::move(store)) : std::move(store);
}

absl::StatusOr<std::shared_ptr<TrajectoryStore>> RedisJobStores::Find(const std::string& job) {
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<RedisTrajectoryStore> store,
                           RedisTrajectoryStore::Open(client_, job));
  return Wrapped(std::move(store));
}

absl::StatusOr<std::shared_ptr<TrajectoryStore>> RedisJobStores::Open(const StoreOptions& options) {
  // A store that is there may have been made anew by a fork: it counts as it is.
  absl::StatusOr<std::shared_ptr<TrajectoryStore>> found = Find(options.job);
  if (found.status().code() != absl::StatusCode::kNotFound) return found;
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<RedisTrajectoryStore> store,
                           RedisTrajectoryStore::Create(client_, options, StoreOrigin()));
  return Wrapped(std::move(store));
}

absl::Status RedisJobStores::Delete(const std::string& job) {
  FRESHET_RETURN_IF_ERROR(RedisTrajectoryStore::Delete(*client_, job));
  return DeleteJobKeys(*client_, job).status();
}

// All drivers ask; one look for all of them is enough.
absl::Status RedisJobStores::CheckSpace() {
  {
    MutexLock lock(mu_);
    if (looking_ || SystemClock::Get().Now() - looked_ < kLookPeriod) return status_;
    looking_ = true;
  }
  const absl::StatusOr<RedisReply> info =
      client_->Command({"INFO", "memory", "errorstats", "stats", "persistence"});
  MutexLock lock(mu_);
  looking_ = false;
  looked_ = SystemClock::Get().Now();
  if (!info.ok()) return status_ = absl::OkStatus();
  RedisReading reading = ParseRedisInfo(info->text);
  reading.evicted = evicted_.Take(reading.evicted);
  reading_ = reading;
  return status_ = space_.Take(reading, looked_);
}

std::optional<RedisReading> RedisJobStores::reading() const {
  MutexLock lock(mu_);
  return reading_;
}

}  // namespace freshet
