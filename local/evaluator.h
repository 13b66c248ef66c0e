#ifndef FRESHET_LOCAL_EVALUATOR_H_
#define FRESHET_LOCAL_EVALUATOR_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "local/job_setup.h"
#include "rollout/worker/rollout_worker.h"
#include "runlog/step_metrics.h"

namespace freshet {

// Evaluates a version on the held-out rows alongside the rollouts, and scores the answers on its
// own threads, so that a slow reward delays nothing else. One evaluation runs at a time, until its
// result is taken; one that is due meanwhile is skipped and counted. Thread-safe.
class Evaluator {
 public:
  // Uses the first min(eval.rows, size) held-out rows. setup and worker must outlive this object,
  // and the worker must have stopped before it is destroyed. `on_finished` (may be empty) is called
  // on another thread when a result is available.
  static absl::StatusOr<std::unique_ptr<Evaluator>> Create(const JobSetup& setup,
                                                           RolloutWorker& worker,
                                                           const Clock& clock,
                                                           std::function<void()> on_finished);
  // Calls Close() and waits for scoring to end.
  ~Evaluator();

  // Starts evaluating `weights`; returns false if an evaluation is running.
  bool Start(const WeightSnapshot& weights);
  // Waits until no evaluation is running, `timeout` has passed or Close(). Returns whether none is
  // running.
  bool AwaitIdle(absl::Duration timeout);
  // Stops scoring and ends all current and future waits. No results are available afterwards.
  void Close();

  // Passes the result, if any, to `record` and returns record's status. The evaluation counts as
  // running until then. Rows that cannot be generated, or scored in reward.max_attempts tries, are
  // left out. The result is an error if no row has a score or the evaluation was abandoned. After
  // Close() there is none.
  absl::Status TakeResult(const std::function<absl::Status(absl::StatusOr<EvalMetrics>)>& record);

  int64_t skipped() const;

 private:
  struct Row {
    std::vector<int32_t> prompt_ids;
    std::map<std::string, std::string> attributes;
  };
  struct Answers {
    PolicyVersion policy;
    absl::Time started;
    EvaluationAnswers answers;
  };

  Evaluator(const JobSetup& setup, RolloutWorker& worker, const Clock& clock,
            std::function<void()> on_finished)
      : setup_(setup), worker_(worker), clock_(clock), on_finished_(std::move(on_finished)) {}
  absl::StatusOr<EvalMetrics> Score(const Answers& answers) const;
  absl::StatusOr<freshet::Score> ScoreRow(size_t row, const Response& response) const;
  void Finish(absl::StatusOr<EvalMetrics> result) ABSL_LOCKS_EXCLUDED(mu_);

  const JobSetup& setup_;
  RolloutWorker& worker_;
  const Clock& clock_;
  const std::function<void()> on_finished_;
  std::vector<Row> rows_;

  mutable Mutex mu_;
  CondVar idle_;
  bool running_ ABSL_GUARDED_BY(mu_) = false;  // until its result has been taken
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int64_t skipped_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<absl::StatusOr<EvalMetrics>> result_ ABSL_GUARDED_BY(mu_);  // not yet taken

  std::stop_source give_up_;
  std::jthread scoring_;  // set on the worker's thread; has ended before the next one starts
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_EVALUATOR_H_
