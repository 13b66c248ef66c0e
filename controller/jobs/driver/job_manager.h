#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_JOB_MANAGER_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_JOB_MANAGER_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "controller/jobs/driver/job_driver.h"
#include "controller/jobs/driver/reservations.h"

namespace freshet {

// All jobs during one term of leadership: adopts running jobs, starts queued ones when their
// workers are free, detects lost workers, and deletes expired jobs. Thread-safe.
class JobManager {
 public:
  // Lines of `own_log` (may be empty) are added to the hub's log.
  JobManager(const DriverContext& context, OwnLog own_log)
      : context_(context), own_log_(std::move(own_log)) {}
  // Calls Stop().
  ~JobManager();

  // Adopts the jobs of the former leader. Their trainers and pools are reserved before this
  // returns, so that no returning worker is dismissed. Errors: those of the datastore; then nothing
  // runs.
  absl::Status Start();
  // Stops all threads; jobs keep running without a controller. Idempotent.
  void Stop();

  // The driver of an active job; null for others.
  std::shared_ptr<JobDriver> Driver(const std::string& job) const ABSL_LOCKS_EXCLUDED(mu_);
  void LookAtQueue() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Control(std::stop_token stop);
  void Maintain(std::stop_token stop);
  void WatchPools(std::stop_token stop);
  void CheckWorkers();
  void LookAtPools() ABSL_LOCKS_EXCLUDED(mu_);
  void ReapDrivers() ABSL_LOCKS_EXCLUDED(mu_);
  // Creates the driver of an active job; the caller starts it. Returns null if another job holds
  // its trainer or pool; the job has then given its workers up (GiveWorkersUp).
  absl::StatusOr<std::shared_ptr<JobDriver>> Adopt(const JobRecord& record)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status RunQueue();
  // Cancels the other jobs of a team of which one failed or was cancelled; updates `records`.
  absl::Status StopTeams(std::vector<JobRecord>& records);
  absl::Status StartJob(const std::string& job, const std::string& trainer, const std::string& pool,
                        const std::vector<Member>& workers);
  absl::Status Expire(std::stop_token stop);
  bool Wait(std::stop_token stop, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);

  const DriverContext context_;
  const OwnLog own_log_;
  mutable Mutex mu_;
  CondVar stopping_;
  std::map<std::string, std::shared_ptr<JobDriver>> drivers_ ABSL_GUARDED_BY(mu_);
  bool queue_changed_ ABSL_GUARDED_BY(mu_) = true;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::set<std::string> waited_for_ ABSL_GUARDED_BY(mu_);  // pools that queued jobs wait for
  std::jthread control_;
  std::jthread maintenance_;
  std::jthread pools_;  // a separate thread, because the scaler may be slow
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_JOB_MANAGER_H_
