#include "controller/jobs/driver/job_evaluations.h"

#include <utility>

#include "base/log.h"
#include "base/str_cat.h"
#include "base/transient.h"
#include "runlog/evaluation_summary.h"

namespace freshet {
namespace {

constexpr int kMaxTries = 5;

}  // namespace

JobEvaluations::JobEvaluations(WorkerHub& hub, EvaluationStore& store, absl::Duration deadline,
                               std::string job, const job::v1::JobSpec& spec, int64_t rows)
    : hub_(hub),
      store_(store),
      job_(std::move(job)),
      name_(spec.eval().name()),
      rule_{spec.eval().every_steps(), spec.trainer().steps()},
      rows_(rows),
      tracker_(deadline, kMaxTries) {}

// Returns the store's permanent errors; after others the version stays due.
absl::Status JobEvaluations::Direct(const EvaluationTracker::Running& running,
                                    const std::vector<EvaluatorSlot>& slots) {
  if (const absl::Status status = store_.Begin(running.id, rows_); !status.ok()) {
    FRESHET_LOG(Warning) << "event=evaluation_not_stored job=" << job_
                         << " error=" << LogQuoted(Message(status));
    tracker_.End();
    return IsTransientStoreError(status) ? absl::OkStatus() : status;
  }
  cluster::v1::Directive directive;
  cluster::v1::Evaluate* evaluate = directive.mutable_evaluate();
  for (const EvaluatorSlot& slot : slots) {
    if (slot.worker != running.worker) continue;
    evaluate->set_assignment_id(slot.assignment_id);
    evaluate->mutable_policy()->set_lineage(slot.policy.lineage);
  }
  evaluate->set_evaluation_id(running.id);
  evaluate->mutable_policy()->set_version(running.version);
  evaluate->set_rows(rows_);
  const absl::Status sent = hub_.Send(running.worker, running.epoch, directive);
  if (!sent.ok()) tracker_.Fail(std::string(Message(sent)));
  return absl::OkStatus();
}

std::optional<JobEvaluations::Ended> JobEvaluations::Turn(int64_t committed, int64_t done_upto,
                                                          const std::vector<EvaluatorSlot>& slots,
                                                          absl::Time now) {
  if (!tracker_.idle()) return CheckRunning(slots, now);
  const DueEvaluation due = FindDueEvaluation(rule_, committed, done_upto);
  if (!due.version.has_value()) return std::nullopt;
  const auto first_try = tracker_.Begin(job_, *due.version, slots, now);
  if (!first_try.has_value()) return std::nullopt;
  if (*due.version > begun_) skipped_ += due.skipped;
  begun_ = *due.version;
  const absl::Status status = Direct(*first_try, slots);
  if (status.ok()) return std::nullopt;
  return Ended{
      *due.version, std::nullopt,
      StrCat("the evaluation of version ", *due.version, " cannot be stored: ", Message(status))};
}

std::optional<JobEvaluations::Ended> JobEvaluations::CheckRunning(
    const std::vector<EvaluatorSlot>& slots, absl::Time now) {
  const EvaluationTracker::Running running = *tracker_.running();
  const absl::StatusOr<EvaluationState> state = store_.Read(running.id);
  if (state.ok()) {
    if (!state->abandoned.empty()) tracker_.Fail(state->abandoned);
    if (state->answered == rows_ && state->policy.version < running.version) {
      tracker_.Fail(
          StrCat("rollout ", running.worker, " answered with version ", state->policy.version));
    } else if (!state->rows.empty()) {
      return Finish(*state, now);
    } else if (state->answered == rows_) {
      tracker_.SetAnswered(now);
    }
  } else if (!IsTransientStoreError(state.status())) {
    tracker_.Fail(std::string(Message(state.status())));
  }
  EvaluationTracker::Outcome outcome = tracker_.Check(slots, now);
  if (!outcome.retry.has_value() && outcome.given_up.empty()) return std::nullopt;
  Discard(running.id);
  if (outcome.retry.has_value()) {
    const absl::Status status = Direct(*outcome.retry, slots);
    if (status.ok()) return std::nullopt;
    outcome.given_up = std::string(Message(status));
  }
  return Ended{running.version, std::nullopt, std::move(outcome.given_up)};
}

JobEvaluations::Ended JobEvaluations::Finish(const EvaluationState& state, absl::Time now) const {
  const EvaluationTracker::Running& running = *tracker_.running();
  Ended ended{running.version, std::nullopt, ""};
  absl::StatusOr<EvalMetrics> metrics = SummarizeEvaluation(name_, state);
  if (metrics.ok()) {
    metrics->eval_seconds = absl::ToDoubleSeconds(now - running.begun);
    ended.metrics = *std::move(metrics);
  } else {
    ended.error = StrCat("the evaluation of version ", running.version,
                         " failed: ", Message(metrics.status()));
  }
  return ended;
}

void JobEvaluations::Cancel() {
  if (tracker_.idle()) return;
  Discard(tracker_.running()->id);
  tracker_.End();
}

// Frees its rows. If this fails, the next Begin or the end of the job frees them.
void JobEvaluations::Discard(const std::string& id) { store_.End(id).IgnoreError(); }

}  // namespace freshet
