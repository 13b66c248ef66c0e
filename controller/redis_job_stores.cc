#include "controller/redis_job_stores.h"

#include "base/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "datastore/redis/redis_trajectory_store.h"

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
  // If the store exists, a fork may have created it. Its own options apply.
  absl::StatusOr<std::shared_ptr<TrajectoryStore>> found = Find(options.job);
  if (found.ok()) {
    const int64_t generation = (*found)->options().generation;
    // Stores written by an older version have no generation.
    if (generation == 0 || generation == options.generation) return found;
    return FailedPrecondition(
        "the store of job ", options.job, " is of generation ", generation, ", not ",
        options.generation, ": another job has or had the id; delete the job and submit it again");
  }
  if (found.status().code() != absl::StatusCode::kNotFound) return found;
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<RedisTrajectoryStore> store,
                           RedisTrajectoryStore::Create(client_, options, StoreOrigin()));
  return Wrapped(std::move(store));
}

absl::Status RedisJobStores::Delete(const JobRemoval& removal) {
  FRESHET_RETURN_IF_ERROR(DeleteJobKeys(*client_, removal).status());
  MutexLock lock(mu_);
  freed_.erase(removal.job);
  return absl::OkStatus();
}

absl::Status RedisJobStores::Free(const JobRemoval& removal, bool resumable) {
  if (resumable) {
    const auto store = RedisTrajectoryStore::Open(client_, removal.job);
    const absl::StatusCode code = store.status().code();
    // There is no store, or it has another format and is freed by the version that wrote it.
    if (code == absl::StatusCode::kNotFound) return absl::OkStatus();
    if (code == absl::StatusCode::kFailedPrecondition) return absl::OkStatus();
    FRESHET_RETURN_IF_ERROR(store.status());
    return (*store)->Sweep().status();
  }
  {
    MutexLock lock(mu_);
    const auto known = freed_.find(removal.job);
    if (known != freed_.end() && known->second == removal.generation) return absl::OkStatus();
  }
  FRESHET_RETURN_IF_ERROR(DeleteJobSamples(*client_, removal).status());
  MutexLock lock(mu_);
  freed_[removal.job] = removal.generation;
  return absl::OkStatus();
}

// All drivers call this, so one check is shared.
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
