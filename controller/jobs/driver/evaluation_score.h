#ifndef FRESHET_CONTROLLER_JOBS_DRIVER_EVALUATION_SCORE_H_
#define FRESHET_CONTROLLER_JOBS_DRIVER_EVALUATION_SCORE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/jobs/driver/job_inputs.h"
#include "controller/jobs/driver/job_ports.h"
#include "freshet/cluster/v1/worker_service.pb.h"
#include "runlog/step_metrics.h"

namespace freshet {

struct EvaluationScoring {
  // Addresses of the reward workers there are now; asked before every call.
  std::function<std::vector<std::string>()> reward_workers;
  std::function<bool()> stopped;  // also: the deadline of the whole has passed
  // Waits a little before the next try; returns at once when stopped.
  std::function<void()> pause;
  absl::Duration call_deadline;
  int max_tries = 10;  // of one call; while no worker or reward service is there nothing counts
};

// Scores the responses of an evaluation of `job` on the cluster's reward workers, in slices, and
// makes the row of metrics.jsonl of it. The workers use the job's own scorers; one that does not
// work on the job yet counts as a failed try. A row that cannot be scored is tried
// reward.max_attempts times. Rows without a score, and rows that could not be generated according
// to the report, are counted and left out of the means: a failure is never a reward. Blocks.
// Returns: INVALID_ARGUMENT for a report that does not fit the rows; FAILED_PRECONDITION with the
// first row's error when every row failed; the last worker's error when none answered; CANCELLED
// when stopped.
// eval_seconds and wall_seconds are left to the caller.
absl::StatusOr<EvalMetrics> ScoreEvaluation(const std::string& job, const job::v1::JobSpec& spec,
                                            const JobInputs& inputs,
                                            const cluster::v1::ReportEvaluationRequest& report,
                                            RewardGateway& rewards,
                                            const EvaluationScoring& scoring);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_EVALUATION_SCORE_H_
