#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_JOB_EVALUATIONS_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_JOB_EVALUATIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "controller/cluster/worker_hub.h"
#include "controller/jobs/plan/evaluation_plan.h"
#include "datastore/evaluation_store.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "runlog/step_metrics.h"

namespace freshet {

// A set that the job evaluates.
struct EvaluatedSet {
  job::v1::EvalSet set;  // of EvalSets
  int64_t rows = 0;      // that there are
};

// The evaluations of one job, one set and version at a time: begins one in the store and directs a
// rollout when one is due, and returns its row once the store has all scores. Not thread-safe.
class JobEvaluations {
 public:
  // `hub` and `store` must outlive this object. `deadline`: time limit of each try, and of scoring.
  JobEvaluations(WorkerHub& hub, EvaluationStore& store, absl::Duration deadline, std::string job,
                 const job::v1::JobSpec& spec, std::vector<EvaluatedSet> sets);

  // An evaluation that finished since the last turn.
  struct Ended {
    std::string set;      // name
    int64_t version = 0;  // the version that was due
    std::optional<EvalMetrics> metrics;
    std::string error;  // set if `metrics` is not
  };
  // Starts due evaluations and checks the running one. `committed`: newest version that may be
  // evaluated, or -1; `done`: largest version evaluated, by set. Returns a result again until the
  // caller has recorded it and calls Cancel(). An evaluation that is given up is returned once.
  std::optional<Ended> Turn(int64_t committed, const std::vector<int64_t>& done,
                            const std::vector<EvaluatorSlot>& slots, absl::Time now);
  // Discards the running evaluation, also in the store.
  void Cancel();
  bool idle() const { return tracker_.idle(); }
  const std::vector<EvaluatedSet>& sets() const { return sets_; }
  int64_t skipped() const { return skipped_; }

 private:
  absl::Status Direct(const EvaluationTracker::Running& running,
                      const std::vector<EvaluatorSlot>& slots);
  std::optional<Ended> CheckRunning(const std::vector<EvaluatorSlot>& slots, absl::Time now);
  void Discard(const std::string& id);
  // An end of `running` without a result. `problem`: what the error says of it, or "".
  Ended EndedOf(const EvaluationTracker::Running& running, const std::string& problem) const;
  Ended Finish(const EvaluationState& state, absl::Time now) const;

  WorkerHub& hub_;
  EvaluationStore& store_;
  const std::string job_;
  const EvaluationRule rule_;
  const std::vector<EvaluatedSet> sets_;
  EvaluationTracker tracker_;
  std::vector<int64_t> begun_;  // largest version, by set
  int64_t skipped_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_JOB_EVALUATIONS_H_
