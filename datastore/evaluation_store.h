#ifndef FRESHET_DATASTORE_EVALUATION_STORE_H_
#define FRESHET_DATASTORE_EVALUATION_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/policy_version.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// A rollout's answer to one held-out row.
struct EvaluationAnswer {
  int64_t row = 0;                           // 0-based
  std::shared_ptr<const Prompt> prompt;      // what the scorers see besides the response
  std::shared_ptr<const Response> response;  // null: no answer could be generated
  std::string error;                         // why; set if `response` is null
};

// Outcome of one row: a score, or the reason why there is none.
struct EvaluationRow {
  std::shared_ptr<const Score> score;  // null: failed
  std::string error;
  int64_t response_tokens = 0;
};

struct EvaluationState {
  PolicyVersion policy;             // of the answers
  int64_t answered = 0;             // rows with an answer or a failure
  int64_t ended = 0;                // rows with a score or a failure
  std::string abandoned;            // the rollout's reason; "" unless it abandoned the evaluation
  std::vector<EvaluationRow> rows;  // all rows in order, once all have ended; until then empty
};

constexpr int64_t kMaxEvaluationRows = 10'000'000;  // as eval.rows of a job file
constexpr int64_t kMaxEvaluationErrorBytes = 300;   // longer ones are truncated

// The current evaluation of a job: a rollout stores its answers to the held-out rows, reward
// workers lease and score them (RowQueue), and the controller reads the scores. Evaluation rows are
// not samples: they are in no group, batch or ledger, and do not count as outstanding. An
// evaluation ends at the latest with the job's store.
//
// Rows end their leases as in TrajectoryStore (DecideRowEnd), but a row that would make its group
// dead ends without a score, an expired lease counts as a lost worker, and revoked workers are not
// refused: their leases expire. AwaitChange reports when rows can be leased; its topic is ignored.
//
// Errors as in RowQueue. Thread-safe.
class EvaluationStore : public RowQueue {
 public:
  // Controller. Starts evaluation `id` and discards the former one. No effect if `id` is current.
  // INVALID_ARGUMENT: an empty id, or rows outside [1, kMaxEvaluationRows].
  virtual absl::Status Begin(const std::string& id, int64_t rows) = 0;
  // Rollout. Stores answers generated with `policy`. Answers to rows that already have one are
  // ignored, so calls may be repeated. INVALID_ARGUMENT: a row out of range; an answer without
  // prompt or with neither response nor error. FAILED_PRECONDITION: `id` is not current.
  virtual absl::Status PutAnswers(const std::string& id, const PolicyVersion& policy,
                                  const std::vector<EvaluationAnswer>& answers) = 0;
  // Rollout. The evaluation cannot go on. FAILED_PRECONDITION: `id` is not current.
  virtual absl::Status Abandon(const std::string& id, const std::string& reason) = 0;
  // Controller. FAILED_PRECONDITION: `id` is not current.
  virtual absl::StatusOr<EvaluationState> Read(const std::string& id) = 0;
  // Controller. Discards evaluation `id`. No effect if it is not current.
  virtual absl::Status End(const std::string& id) = 0;
};

// Argument checks (INVALID_ARGUMENT) and errors (FAILED_PRECONDITION) of all implementations.
absl::Status CheckEvaluation(const std::string& id, int64_t rows);
absl::Status CheckAnswers(const std::vector<EvaluationAnswer>& answers, int64_t rows);
absl::Status CheckEvaluationRequest(const RowRequest& request);
absl::Status EvaluationNotCurrent(const std::string& id);
absl::Status EvaluationLeaseNotLive(int64_t token);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_EVALUATION_STORE_H_
