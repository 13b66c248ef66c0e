#ifndef FRESHET_CONTROLLER_JOBS_PLAN_EVALUATION_PLAN_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_EVALUATION_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "datastore/trajectory.h"

namespace freshet {

// Versions that a job evaluates: 0, every `every`-th, and the last one.
struct EvaluationRule {
  int64_t every = 1;
  int64_t last = 0;  // version after the job's last step
};

// The newest version that is due, at most `committed` and above `begun` (the largest version whose
// evaluation has begun, -1 if none). None if there is no such version. Due versions in between that
// were passed over are counted in `skipped`. Pure.
struct DueEvaluation {
  std::optional<int64_t> version;
  int64_t skipped = 0;
};
DueEvaluation FindDueEvaluation(const EvaluationRule& rule, int64_t committed, int64_t begun);

// The set and version to evaluate next: of the sets with a due version, the one that is furthest
// behind, then the first one. A set that is behind another gets the version of that one, so that
// every set is evaluated with the same versions. `done`: largest version evaluated, by set. Pure.
struct NextEvaluation {
  size_t set = 0;
  int64_t version = 0;
  int64_t skipped = 0;  // as in DueEvaluation
};
std::optional<NextEvaluation> FindNextEvaluation(const EvaluationRule& rule, int64_t committed,
                                                 const std::vector<int64_t>& done);

struct EvaluatorSlot {
  std::string worker;
  int64_t epoch = 0;
  std::string assignment_id;
  PolicyVersion policy;  // it currently generates with
};

// Tracks one evaluation at a time: which worker runs it, since when, and when to reassign it. Time
// is an argument. Not thread-safe.
class EvaluationTracker {
 public:
  // `deadline` is per try, and once more for scoring. The evaluation is given up after `max_tries`
  // tries.
  EvaluationTracker(absl::Duration deadline, int max_tries)
      : deadline_(deadline), max_tries_(max_tries) {}

  struct Running {
    std::string id;  // of this try
    size_t set = 0;
    int64_t version = 0;
    std::string worker;
    int64_t epoch = 0;
    std::string assignment_id;
    absl::Time begun;  // of the first try
    absl::Time tried;
    int tries = 0;
    bool answered = false;  // all rows have an answer; they are being scored
    absl::Time answered_at;
  };

  bool idle() const { return !running_.has_value(); }
  const std::optional<Running>& running() const { return running_; }

  // Starts `next`, with its version or a newer one, on the slot of the worker that evaluated this
  // version last, or else with the oldest such version, if there is one. `name`: of the set.
  // Returns the try to direct, or none.
  std::optional<Running> Begin(const std::string& job, const std::string& name,
                               const NextEvaluation& next, const std::vector<EvaluatorSlot>& slots,
                               absl::Time now);
  // Checks the running evaluation. If its worker is gone or took too long, returns the next try to
  // direct. If no tries are left, or scoring took too long, sets `given_up` to the reason and
  // becomes idle.
  struct Outcome {
    std::optional<Running> retry;
    std::string given_up;
  };
  Outcome Check(const std::vector<EvaluatorSlot>& slots, absl::Time now);
  // The current try failed; Check retries on another worker.
  void Fail(const std::string& error);
  // All rows have an answer: unless Fail is called, the try is not repeated, and `deadline` applies
  // to scoring.
  void SetAnswered(absl::Time now);
  void End() { running_.reset(); }

 private:
  std::optional<Running> Direct(const std::vector<EvaluatorSlot>& slots, absl::Time now);

  const absl::Duration deadline_;
  const int max_tries_;
  std::optional<Running> running_;
  std::optional<Running> last_;  // the try before this one
  std::string job_;
  std::string name_;  // of the set
  std::string last_error_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_EVALUATION_PLAN_H_
