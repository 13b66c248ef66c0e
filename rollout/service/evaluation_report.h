#ifndef FRESHET_ROLLOUT_SERVICE_EVALUATION_REPORT_H_
#define FRESHET_ROLLOUT_SERVICE_EVALUATION_REPORT_H_

#include "freshet/cluster/v1/worker_service.pb.h"
#include "model/tokenizer.h"
#include "rollout/worker/rollout_worker.h"

namespace freshet {

// Adds the answers of an evaluation to its report, one entry per row; failed_rows lists rows
// without a response. If no row has one, `error` says so, with the error of row 0. `episodes`: rows
// have an environment reward.
void AddAnswers(const EvaluationAnswers& answers, const Tokenizer& tokenizer, bool episodes,
                cluster::v1::ReportEvaluationRequest& report);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_EVALUATION_REPORT_H_
