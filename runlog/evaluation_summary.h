#ifndef FRESHET_RUNLOG_EVALUATION_SUMMARY_H_
#define FRESHET_RUNLOG_EVALUATION_SUMMARY_H_

#include <string>

#include "absl/status/statusor.h"
#include "datastore/evaluation_store.h"
#include "runlog/step_metrics.h"

namespace freshet {

// The row of metrics.jsonl of an evaluation whose rows have all ended: means over the rows with a
// score, summed in row order, so that equal scores give equal bits. Rows without a score are
// counted, logged, and excluded from the means: a failure is never a reward. The caller sets
// eval_seconds and wall_seconds. FAILED_PRECONDITION, with the first row's error: no row has a
// score. Thread-safe.
absl::StatusOr<EvalMetrics> SummarizeEvaluation(const std::string& name,
                                                const EvaluationState& state);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_EVALUATION_SUMMARY_H_
