#ifndef FRESHET_RUNLOG_EVALUATION_SUMMARY_H_
#define FRESHET_RUNLOG_EVALUATION_SUMMARY_H_

#include "absl/status/statusor.h"
#include "datastore/evaluation_store.h"
#include "freshet/job/v1/job_service.pb.h"
#include "freshet/job/v1/job_spec.pb.h"
#include "runlog/step_metrics.h"

namespace freshet {

// The row of metrics.jsonl of an evaluation of `set` whose samples have all ended. Rows of the
// store are samples: sample s of row r is number r * samples_per_prompt + s.
//
// Means are over the samples with a score, summed in order, so that equal scores give equal bits.
// pass@k (PassAtK) is the mean over the rows with at least k scored samples, and absent if there is
// none. A sample is correct if its reward is at least set.pass_reward, up to a rounding error of
// 1e-9. Samples without a score are counted, logged, and otherwise excluded: a failure is never a
// reward. The caller sets eval_seconds and wall_seconds.
// FAILED_PRECONDITION, with the first error: no sample has a score. Thread-safe.
absl::StatusOr<EvalMetrics> SummarizeEvaluation(const job::v1::EvalSet& set,
                                                const EvaluationState& state);

// Makes the row `metrics` the evaluation of its set in `newest`, which has one for each set.
void SetNewestEvaluation(const EvalMetrics& metrics,
                         google::protobuf::RepeatedPtrField<job::v1::Evaluation>& newest);

}  // namespace freshet

#endif  // FRESHET_RUNLOG_EVALUATION_SUMMARY_H_
