#include "controller/jobs/driver/job_manager.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/proto_time.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "controller/jobs/plan/scheduler.h"
#include "controller/jobs/plan/team_plan.h"
#include "controller/jobs/record/deposed.h"

namespace freshet {
namespace {

using job::v1::JOB_STATE_PENDING;

// Ticks between periodic checks of the queue.
constexpr int64_t kTicksPerLook = 5;

bool IsReady(const Member& member) {
  return !member.record.lost() && member.connected && !member.status.draining();
}

QueuedJob ToQueued(const JobRecord& record) {
  const std::string& pool = record.spec().pool();
  return {record.id(),
          record.priority(),
          FromTimestamp(record.created()),
          pool.empty() ? "default" : pool,
          EngineOf(record.spec()),
          record.trainer()};
}

}  // namespace

JobManager::~JobManager() { Stop(); }

absl::Status JobManager::Start() {
  FRESHET_ASSIGN_OR_RETURN(std::vector<JobRecord> records, context_.registry.List());
  // If two jobs name the same trainer or pool, the one that started first keeps it.
  std::stable_sort(records.begin(), records.end(), [](const JobRecord& a, const JobRecord& b) {
    return FromTimestamp(a.started()) < FromTimestamp(b.started());
  });
  std::vector<std::shared_ptr<JobDriver>> drivers;
  for (const JobRecord& record : records) {
    FRESHET_RETURN_IF_ERROR(context_.registry.Replay(record));
    if (!IsActive(record)) continue;
    FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<JobDriver> driver, Adopt(record));
    if (driver != nullptr) drivers.push_back(std::move(driver));
  }
  for (const auto& driver : drivers) driver->Start();
  control_ = std::jthread([this](std::stop_token stop) { Control(stop); });
  maintenance_ = std::jthread([this](std::stop_token stop) { Maintain(stop); });
  pools_ = std::jthread([this](std::stop_token stop) { WatchPools(stop); });
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<JobDriver>> JobManager::Adopt(const JobRecord& record) {
  const std::string trainer = Reservations::Trainer(record.trainer());
  const bool has_trainer = context_.reservations.Reserve(trainer, record.id());
  if (!has_trainer ||
      !context_.reservations.Reserve(Reservations::Pool(record.pool()), record.id())) {
    const std::string reason =
        has_trainer ? StrCat("pool ", record.pool(), " is that of job ",
                             context_.reservations.HolderOf(Reservations::Pool(record.pool())))
                    : StrCat("trainer ", record.trainer(), " is that of job ",
                             context_.reservations.HolderOf(trainer));
    context_.reservations.Release(record.id());
    FRESHET_LOG(Error) << "event=claimed_twice job=" << record.id()
                       << " reason=" << LogQuoted(reason);
    FRESHET_RETURN_IF_ERROR(context_.registry
                                .Change(record.id(),
                                        [&](JobRecord& current) {
                                          if (!IsActive(current)) return absl::OkStatus();
                                          return GiveWorkersUp(
                                              current, StrCat(reason, ", which started first"),
                                              context_.clock.Now());
                                        })
                                .status());
    return nullptr;
  }
  auto driver = std::make_shared<JobDriver>(context_, record);
  FRESHET_LOG(Info) << "event=job_taken_over job=" << record.id()
                    << " state=" << StateName(record.state()) << " step=" << record.step();
  MutexLock lock(mu_);
  return drivers_[record.id()] = std::move(driver);
}

void JobManager::Stop() {
  std::map<std::string, std::shared_ptr<JobDriver>> drivers;
  {
    MutexLock lock(mu_);
    stopped_ = true;
    stopping_.NotifyAll();
    drivers = drivers_;
  }
  for (std::jthread* thread : {&control_, &maintenance_, &pools_}) thread->request_stop();
  context_.hub.Wake();
  // Request all stops before waiting, because a driver may be in a call that takes a minute.
  for (const auto& [id, driver] : drivers) driver->RequestStop();
  drivers.clear();
  for (std::jthread* thread : {&control_, &maintenance_, &pools_}) {
    if (thread->joinable()) thread->join();
  }
  {
    MutexLock lock(mu_);
    drivers.swap(drivers_);
  }
  for (const auto& [id, driver] : drivers) driver->Stop();
}

std::shared_ptr<JobDriver> JobManager::Driver(const std::string& job) const {
  MutexLock lock(mu_);
  const auto found = drivers_.find(job);
  return found == drivers_.end() ? nullptr : found->second;
}

void JobManager::LookAtQueue() {
  {
    MutexLock lock(mu_);
    queue_changed_ = true;
  }
  context_.hub.Wake();
}

void JobManager::Control(std::stop_token stop) {
  uint64_t looked = 0;
  int64_t ticks = 0;
  while (!stop.stop_requested()) {
    const uint64_t seen = context_.hub.ChangeCount();
    context_.hub.log().TakeOwn(own_log_);
    CheckWorkers();
    ReapDrivers();
    bool due = ticks++ % kTicksPerLook == 0 || seen != looked;
    {
      MutexLock lock(mu_);
      due = std::exchange(queue_changed_, false) || due;
    }
    if (due) {
      looked = seen;
      const absl::Status status = RunQueue();
      if (!status.ok()) {
        FRESHET_LOG(Warning) << "event=queue_failed error=" << LogQuoted(Message(status));
        MutexLock lock(mu_);
        queue_changed_ = true;
      }
    }
    context_.hub.AwaitChange(seen, context_.timing.tick);
  }
}

void JobManager::CheckWorkers() {
  const std::vector<Member> before = context_.hub.Workers();
  const absl::StatusOr<std::vector<LostWorker>> lost = context_.hub.Check();
  if (!lost.ok()) {
    FRESHET_LOG(Warning) << "event=workers_failed error=" << LogQuoted(Message(lost.status()));
    return;
  }
  for (const LostWorker& worker : *lost) {
    for (const Member& member : before) {
      if (member.record.name() == worker.name) context_.observer.OnWorkerLost(member.record.role());
    }
  }
  context_.observer.OnWorkers(context_.hub.Workers());
}

void JobManager::LookAtPools() {
  const absl::Time now = context_.clock.Now();
  if (!context_.pools.Due(now)) return;
  PoolInput input;
  input.workers = context_.hub.Workers();
  input.asked = context_.scaler.Wanted();
  {
    MutexLock lock(mu_);
    input.queued = waited_for_;
    for (const auto& [id, driver] : drivers_) {
      if (!driver->finished()) input.jobs.push_back(driver->Demand());
    }
  }
  context_.observer.OnPools(context_.pools.Look(input, now));
}

void JobManager::ReapDrivers() {
  std::vector<std::shared_ptr<JobDriver>> finished;
  {
    MutexLock lock(mu_);
    for (auto it = drivers_.begin(); it != drivers_.end();) {
      if (!it->second->finished()) {
        ++it;
        continue;
      }
      finished.push_back(std::move(it->second));
      it = drivers_.erase(it);
      queue_changed_ = true;
    }
  }
  for (const auto& driver : finished) driver->Stop();
}

absl::Status JobManager::RunQueue() {
  FRESHET_ASSIGN_OR_RETURN(std::vector<JobRecord> records, context_.registry.List());
  FRESHET_RETURN_IF_ERROR(StopTeams(records));
  ScheduleInput input;
  std::map<std::string, std::string> reasons;
  std::set<std::string> driven;
  {
    MutexLock lock(mu_);
    for (const auto& [id, driver] : drivers_) driven.insert(id);
  }
  for (const JobRecord& record : records) {
    if (driven.contains(record.id())) continue;
    if (IsActive(record)) {
      // Its start was stored, but the datastore's reply was lost. Its reservations are still held.
      FRESHET_ASSIGN_OR_RETURN(const std::shared_ptr<JobDriver> driver, Adopt(record));
      if (driver == nullptr) continue;
      driver->Start();
      driven.insert(record.id());
      continue;
    }
    if (record.state() != JOB_STATE_PENDING) continue;
    input.queue.push_back(ToQueued(record));
    reasons[record.id()] = record.reason();
  }
  // No other job's start was stored.
  context_.reservations.ReleaseAllBut(driven);
  {
    MutexLock lock(mu_);
    waited_for_.clear();
    for (const QueuedJob& job : input.queue) waited_for_.insert(job.pool);
  }
  if (input.queue.empty()) return absl::OkStatus();
  const std::vector<Member> workers = context_.hub.Workers();
  std::map<std::string, PoolSlot> pools;
  for (const QueuedJob& job : input.queue) pools[job.pool].name = job.pool;
  for (const Member& member : workers) {
    const std::string& name = member.record.name();
    if (member.record.role() == cluster::v1::ROLE_TRAINER) {
      input.trainers.push_back(
          {name, IsReady(member), context_.reservations.HolderOf(Reservations::Trainer(name))});
    } else if (member.record.role() == cluster::v1::ROLE_ROLLOUT && IsReady(member)) {
      PoolSlot& pool = pools[member.record.pool()];
      pool.name = member.record.pool();
      ++pool.ready[EngineOf(member.record)];
    }
  }
  for (auto& [name, pool] : pools) {
    pool.job = context_.reservations.HolderOf(Reservations::Pool(name));
    input.pools.push_back(pool);
  }
  const Schedule schedule = ScheduleJobs(input);
  for (const JobStart& start : schedule.starts) {
    FRESHET_RETURN_IF_ERROR(StartJob(start.job, start.trainer, start.pool, workers));
  }
  for (const JobWait& wait : schedule.waits) {
    if (reasons[wait.job] == wait.reason) continue;
    FRESHET_RETURN_IF_ERROR(context_.registry
                                .Change(wait.job,
                                        [&wait](JobRecord& record) {
                                          if (record.state() == JOB_STATE_PENDING) {
                                            record.set_reason(wait.reason);
                                          }
                                          return absl::OkStatus();
                                        })
                                .status());
  }
  return absl::OkStatus();
}

absl::Status JobManager::StopTeams(std::vector<JobRecord>& records) {
  for (const TeamStop& stop : FindTeamStops(records)) {
    // The job may have been resumed or deleted after `records` were read.
    const absl::StatusOr<JobRecord> cause = context_.registry.Get(stop.cause);
    if (cause.status().code() == absl::StatusCode::kNotFound) continue;
    FRESHET_RETURN_IF_ERROR(cause.status());
    if (!HasFailedOrWasCancelled(*cause)) continue;
    const auto cancel = [this, &stop](JobRecord& record) {
      if (HasEnded(record.state())) return absl::OkStatus();
      const absl::Time now = context_.clock.Now();
      FRESHET_RETURN_IF_ERROR(WantCancelled(record, stop.reason, now));
      if (HasEnded(record.state())) {
        *record.mutable_expires() = ToTimestamp(now + context_.retention.keep);
      }
      return absl::OkStatus();
    };
    const absl::StatusOr<JobRecord> changed = context_.registry.Change(stop.job, cancel);
    if (changed.status().code() == absl::StatusCode::kNotFound) continue;  // deleted meanwhile
    FRESHET_RETURN_IF_ERROR(changed.status());
    FRESHET_LOG(Info) << "event=team_stopped job=" << stop.job
                      << " reason=" << LogQuoted(stop.reason);
    for (JobRecord& record : records) {
      if (record.id() == stop.job) record = *changed;
    }
  }
  return absl::OkStatus();
}

absl::Status JobManager::StartJob(const std::string& job, const std::string& trainer,
                                  const std::string& pool, const std::vector<Member>& workers) {
  const bool claimed = context_.reservations.Reserve(Reservations::Trainer(trainer), job) &&
                       context_.reservations.Reserve(Reservations::Pool(pool), job);
  const Member* member = FindMember(workers, trainer);
  const auto started = [&](JobRecord& record) {
    if (record.state() != JOB_STATE_PENDING) {
      return FailedPrecondition("job ", job, " is no longer queued");
    }
    const absl::Time now = context_.clock.Now();
    FRESHET_RETURN_IF_ERROR(
        MoveTo(record, job::v1::JOB_STATE_STARTING,
               StrCat("trainer ", trainer, " and pool ", pool, " load model and data"), now));
    record.set_pool(pool);
    record.set_trainer(trainer);
    record.clear_assignments();
    const Assignment assignment =
        NewAssignment(record, cluster::v1::ROLE_TRAINER, trainer, member->record.epoch(),
                      member->record.incarnation(), now);
    *record.add_assignments() = assignment;
    return absl::OkStatus();
  };
  const absl::StatusOr<JobRecord> record =
      claimed && member != nullptr
          ? context_.registry.Change(job, started)
          : absl::StatusOr<JobRecord>(FailedPrecondition("the workers were taken"));
  if (!record.ok()) {
    // The write may have succeeded: keep the reservations until the record can be read.
    if (record.status().code() == absl::StatusCode::kUnavailable) return record.status();
    context_.reservations.Release(job);
    return absl::OkStatus();  // paused or cancelled meanwhile: not an error
  }
  auto driver = std::make_shared<JobDriver>(context_, *record);
  {
    MutexLock lock(mu_);
    drivers_[job] = driver;
  }
  driver->Start();
  FRESHET_LOG(Info) << "event=job_starts job=" << job << " trainer=" << trainer << " pool=" << pool;
  return absl::OkStatus();
}

bool JobManager::Wait(std::stop_token stop, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  MutexLock lock(mu_);
  while (!stopped_ && !stop.stop_requested()) {
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return true;
    stopping_.WaitFor(mu_, left);
  }
  return false;
}

void JobManager::Maintain(std::stop_token stop) {
  while (Wait(stop, context_.timing.retention_period)) {
    const absl::Status status = Expire(stop);
    if (!status.ok()) {
      FRESHET_LOG(Warning) << "event=retention_failed error=" << LogQuoted(Message(status));
    }
  }
}

void JobManager::WatchPools(std::stop_token stop) {
  while (Wait(stop, context_.timing.tick)) LookAtPools();
}

absl::Status JobManager::Expire(std::stop_token stop) {
  FRESHET_ASSIGN_OR_RETURN(const std::vector<JobRecord> records, context_.registry.List());
  for (const JobRecord& record : records) {
    if (stop.stop_requested()) break;
    if (HasEnded(record.state()) && Driver(record.id()) == nullptr) FreeEnded(context_, record);
  }
  for (const Expiry& expiry : FindExpired(records, context_.clock.Now(), context_.retention)) {
    if (stop.stop_requested()) break;
    if (Driver(expiry.job) != nullptr) continue;
    const absl::StatusOr<JobRecord> marked = context_.registry.Change(expiry.job, WantDeleted);
    const absl::StatusCode code = marked.status().code();
    if (code == absl::StatusCode::kNotFound) continue;  // deleted meanwhile
    if (code == absl::StatusCode::kFailedPrecondition && !IsDeposed(marked.status())) continue;
    FRESHET_RETURN_IF_ERROR(marked.status());
    FRESHET_RETURN_IF_ERROR(context_.registry.Delete(
        *marked, [this](const JobRemoval& job) { return context_.stores.Delete(job); }));
    FRESHET_LOG(Info) << "event=job_expired job=" << expiry.job
                      << " reason=" << LogQuoted(expiry.reason);
  }
  return absl::OkStatus();
}

}  // namespace freshet
