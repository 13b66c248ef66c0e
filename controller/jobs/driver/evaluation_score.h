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
  // Addresses of the current reward workers; called before every request.
  std::function<std::vector<std::string>()> reward_workers;
  std::function<bool()> stopped;  // also true once the overall deadline has passed
  // Sleeps before the next try; returns at once if stopped.
  std::function<void()> pause;
  absl::Duration call_deadline;
  int max_tries = 10;  // per call; tries with no reward worker or service available do not count
};

// Scores the responses of an evaluation of `job` on the cluster's reward workers, in slices, and
// returns its row of metrics.jsonl. The workers use the job's own scorers; a worker that does not
// work on the job yet counts as a failed try. A row that cannot be scored is tried
// reward.max_attempts times. Rows without a score, and rows that the report marks as not generated,
// are counted but excluded from the means: a failure is never a reward. Blocks. Errors:
// INVALID_ARGUMENT if the report does not match the rows; FAILED_PRECONDITION with the first row's
// error if every row failed; the last worker's error if none answered; CANCELLED if stopped. The
// caller sets eval_seconds and wall_seconds.
absl::StatusOr<EvalMetrics> ScoreEvaluation(const std::string& job, const job::v1::JobSpec& spec,
                                            const JobInputs& inputs,
                                            const cluster::v1::ReportEvaluationRequest& report,
                                            RewardGateway& rewards,
                                            const EvaluationScoring& scoring);

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_DRIVER_EVALUATION_SCORE_H_
