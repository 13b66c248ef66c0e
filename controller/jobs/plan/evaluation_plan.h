#ifndef FRESHET_CONTROLLER_JOBS_PLAN_EVALUATION_PLAN_H_
#define FRESHET_CONTROLLER_JOBS_PLAN_EVALUATION_PLAN_H_

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

// The newest version up to `committed` that is due and larger than `begun` (the largest whose
// evaluation has begun, -1 for none); none when there is no such version. Versions between that
// were passed over are counted in `skipped`. Pure.
struct DueEvaluation {
  std::optional<int64_t> version;
  int64_t skipped = 0;
};
DueEvaluation FindDueEvaluation(const EvaluationRule& rule, int64_t committed, int64_t begun);

// A rollout that could evaluate.
struct EvaluatorSlot {
  std::string worker;
  int64_t epoch = 0;
  std::string assignment_id;
  PolicyVersion policy;  // that it generates with
};

// One evaluation at a time: which worker has it, since when, and when it is given to another.
// Time is an argument. Confined to one thread.
class EvaluationTracker {
 public:
  // `deadline` of one try; after `max_tries` of them the evaluation is given up.
  EvaluationTracker(absl::Duration deadline, int max_tries)
      : deadline_(deadline), max_tries_(max_tries) {}

  struct Running {
    std::string id;  // of this try
    int64_t version = 0;
    std::string worker;
    int64_t epoch = 0;
    absl::Time begun;  // of the first try
    absl::Time tried;
    int tries = 0;
    bool reported = false;  // the responses are there and are being scored
  };

  bool idle() const { return !running_.has_value(); }
  const std::optional<Running>& running() const { return running_; }

  // Begins the evaluation of `version` (at least) on the slot that has come furthest, if one is at
  // `version` or beyond. Returns the try to be directed, or none.
  std::optional<Running> Begin(const std::string& job, int64_t version,
                               const std::vector<EvaluatorSlot>& slots, absl::Time now);
  // Looks after the running one: when its worker is gone or took too long, the next try to be
  // directed; when there is none left, `given_up` with the reason, and it is idle again.
  struct Outcome {
    std::optional<Running> retry;
    std::string given_up;
  };
  Outcome Check(const std::vector<EvaluatorSlot>& slots, absl::Time now);
  // The worker could not do it; Check tries another.
  void Fail(const std::string& id, const std::string& error);
  // True when `id` is the try under way; it is then reported, and not tried again.
  bool Report(const std::string& id);
  void End() { running_.reset(); }

 private:
  std::optional<Running> Direct(const std::vector<EvaluatorSlot>& slots, absl::Time now);

  const absl::Duration deadline_;
  const int max_tries_;
  std::optional<Running> running_;
  std::string job_;
  std::string last_error_;
};

}  // namespace freshet

#endif  // FRESHET_CONTROLLER_JOBS_PLAN_EVALUATION_PLAN_H_
