#ifndef FRESHET_LOCAL_LOCAL_STATUS_H_
#define FRESHET_LOCAL_LOCAL_STATUS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "controller/status_page/status_source.h"
#include "datastore/trajectory_store.h"
#include "job/job_schema.h"
#include "runlog/samples_log.h"
#include "runlog/step_metrics.h"

namespace freshet {

class RewardWorker;
class RolloutWorker;

// The status page's view of a run in this process: one job, whose workers are its threads. Keeps
// the newest 100,000 rows and 1,000 samples. Thread-safe.
class LocalStatus final : public StatusSource {
 public:
  // `clock` must outlive it. The job starts in state STARTING.
  LocalStatus(const JobSpec& spec, const Clock& clock);

  // Loads the rows already written by a resumed run; skips unreadable ones.
  void LoadHistory(const std::string& metrics_path, const std::string& samples_path);
  // Adds a row of metrics.jsonl. Ignores anything else.
  void AddRow(const std::string& json) ABSL_LOCKS_EXCLUDED(mu_);
  void AddNotice(const std::string& kind, const std::map<std::string, std::string>& fields)
      ABSL_LOCKS_EXCLUDED(mu_);
  void AddSamples(const std::vector<SampleRow>& rows) ABSL_LOCKS_EXCLUDED(mu_);
  // Also adds an event.
  void SetState(job::v1::JobState state, const std::string& reason) ABSL_LOCKS_EXCLUDED(mu_);
  // Sets the sources of the job's live state; all null removes them. When this returns, the former
  // sources are no longer used.
  void Watch(TrajectoryStore* store, const RolloutWorker* rollout,
             const RewardWorker* reward = nullptr) ABSL_LOCKS_EXCLUDED(live_mu_);

  StatusIdentity Identity() override;
  absl::StatusOr<StatusJobs> List(int limit) override;
  absl::StatusOr<job::v1::Job> Get(const std::string& id) override;
  absl::StatusOr<StatusRows> Metrics(const std::string& id, int64_t after, int64_t limit) override;
  absl::StatusOr<std::vector<std::string>> Samples(const std::string& id, int limit) override;
  absl::StatusOr<job::v1::Cluster> Cluster() override;

 private:
  absl::Status Check(const std::string& id) const;
  void AddEvent(job::v1::Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  job::v1::Worker MakeWorker(const std::string& role) const;

  const Clock& clock_;
  const std::string id_;

  Mutex mu_;
  job::v1::Job job_ ABSL_GUARDED_BY(mu_);
  std::optional<StepMetrics> last_step_ ABSL_GUARDED_BY(mu_);
  std::deque<std::pair<int64_t, std::string>> rows_ ABSL_GUARDED_BY(mu_);  // by cursor
  int64_t cursor_ ABSL_GUARDED_BY(mu_) = 0;                                // of the newest row
  std::deque<std::string> samples_ ABSL_GUARDED_BY(mu_);                   // oldest first

  Mutex live_mu_;
  TrajectoryStore* store_ ABSL_GUARDED_BY(live_mu_) = nullptr;
  const RolloutWorker* rollout_ ABSL_GUARDED_BY(live_mu_) = nullptr;
  const RewardWorker* reward_ ABSL_GUARDED_BY(live_mu_) = nullptr;
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_LOCAL_STATUS_H_
