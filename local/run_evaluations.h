#ifndef FRESHET_LOCAL_RUN_EVALUATIONS_H_
#define FRESHET_LOCAL_RUN_EVALUATIONS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "local/evaluator.h"
#include "local/job_setup.h"
#include "local/resume_point.h"
#include "local/run_recorder.h"
#include "trainer/checkpoint/checkpoint_score.h"

namespace freshet {

// The evaluations of a local run: decides which versions are evaluated, and records the results.
// An evaluation that fails or takes too long is recorded and does not end the run. The trainer's
// thread calls BeforeStep, StartIfDue and TakeScores, and the controller's the others.
class RunEvaluations {
 public:
  // The references must outlive this object. `stopping`: whether the run was asked to stop;
  // thread-safe.
  RunEvaluations(const JobSetup& setup, const ResumePoint& resume,
                 std::unique_ptr<Evaluator> evaluator, RunRecorder& recorder, const Clock& clock,
                 std::function<bool()> stopping);

  // Starts evaluating `weights`, of `step`, if they are due. Not the last version: see
  // EvaluateLast. One that is due while another is evaluated is skipped.
  absl::Status StartIfDue(int64_t step, const WeightSnapshot& weights);
  // Call before the row of the step after `committed` is written. If runs must be bitwise
  // reproducible, no evaluation may be skipped for lack of time, and its row must come before that
  // row: waits for the evaluation.
  absl::Status BeforeStep(int64_t committed);
  // Whether BeforeStep is waiting.
  bool awaited() const { return awaited_; }
  // Scores of checkpoints since the last call.
  std::vector<CheckpointScore> TakeScores() ABSL_LOCKS_EXCLUDED(mu_);

  // Records the result of a set, if there is one.
  absl::Status Record();
  // Call repeatedly while the run stops: ends BeforeStep's wait after a grace period.
  void GiveUpAwaited();
  // Call repeatedly once the trainer is done, with the last version: evaluates it. Returns true
  // once the results are recorded or it takes too long.
  absl::StatusOr<bool> EvaluateLast(const WeightSnapshot& weights);
  // Ends all waits. Nothing is recorded afterwards.
  void Close() { evaluator_->Close(); }

 private:
  absl::StatusOr<bool> Start(const WeightSnapshot& weights);

  const JobSetup& setup_;
  const ResumePoint& resume_;
  const std::unique_ptr<Evaluator> evaluator_;
  RunRecorder& recorder_;
  const Clock& clock_;
  const std::function<bool()> stopping_;
  const absl::Duration longest_;  // that an evaluation may take
  std::atomic<bool> awaited_{false};
  absl::Time give_up_awaited_ = absl::InfiniteFuture();
  absl::Time give_up_last_ = absl::InfiniteFuture();
  bool last_started_ = false;
  Mutex mu_;
  std::vector<CheckpointScore> scores_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_RUN_EVALUATIONS_H_
