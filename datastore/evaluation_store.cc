#include "datastore/evaluation_store.h"

#include "base/str_cat.h"

namespace freshet {

absl::Status CheckEvaluation(const std::string& id, int64_t rows) {
  if (id.empty()) return InvalidArgument("evaluation id: empty");
  if (rows >= 1 && rows <= kMaxEvaluationRows) return absl::OkStatus();
  return InvalidArgument("rows of evaluation ", id, ": ", rows, " is out of range: use 1 to ",
                         kMaxEvaluationRows);
}

absl::Status CheckAnswers(const std::vector<EvaluationAnswer>& answers, int64_t rows) {
  for (const EvaluationAnswer& answer : answers) {
    if (answer.row < 0 || answer.row >= rows) {
      return InvalidArgument("answer to row ", answer.row, ": the evaluation has ", rows, " rows");
    }
    const bool answered = answer.prompt != nullptr && answer.response != nullptr;
    if (!answered && (answer.response != nullptr || answer.error.empty())) {
      return InvalidArgument("answer to row ", answer.row,
                             ": needs a prompt and a response, or an error");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckEvaluationRequest(const RowRequest& request) {
  if (request.worker.empty()) return InvalidArgument("worker: empty: a lease needs a holder");
  if (request.max_rows < 0) {
    return InvalidArgument("max_rows: ", request.max_rows, " is negative");
  }
  return absl::OkStatus();
}

absl::Status EvaluationNotCurrent(const std::string& id) {
  return FailedPrecondition("evaluation ", id, " is not current: it ended or another one began");
}

absl::Status EvaluationLeaseNotLive(int64_t token) {
  return FailedPrecondition("lease ", token, " of an evaluation row is not live");
}

}  // namespace freshet
