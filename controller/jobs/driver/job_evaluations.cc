#include "controller/jobs/driver/job_evaluations.h"

#include <utility>

#include "base/log.h"
#include "base/str_cat.h"
#include "base/transient.h"
#include "runlog/evaluation_summary.h"

namespace freshet {
namespace {

constexpr int kMaxTries = 5;

// Rows of the store: one for each sample.
int64_t NumSamples(const EvaluatedSet& set) { return set.rows * set.set.samples_per_prompt(); }

}  // namespace

JobEvaluations::JobEvaluations(WorkerHub& hub, EvaluationStore& store, absl::Duration deadline,
                               std::string job, const job::v1::JobSpec& spec,
                               std::vector<EvaluatedSet> sets)
    : hub_(hub),
      store_(store),
      job_(std::move(job)),
      rule_{spec.eval().every_steps(), spec.trainer().steps()},
      sets_(std::move(sets)),
      tracker_(deadline, kMaxTries),
      begun_(sets_.size(), -1) {}

// Returns the store's permanent errors; after others the version stays due.
absl::Status JobEvaluations::Direct(const EvaluationTracker::Running& running,
                                    const std::vector<EvaluatorSlot>& slots) {
  const EvaluatedSet& set = sets_[running.set];
  const int64_t samples = NumSamples(set);
  if (const absl::Status status = store_.Begin(running.id, samples); !status.ok()) {
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
  evaluate->set_rows(set.rows);
  evaluate->set_eval_set(set.set.name());
  const absl::Status sent = hub_.Send(running.worker, running.epoch, directive);
  if (!sent.ok()) tracker_.Fail(std::string(Message(sent)));
  return absl::OkStatus();
}

std::optional<JobEvaluations::Ended> JobEvaluations::Turn(int64_t committed,
                                                          const std::vector<int64_t>& done,
                                                          const std::vector<EvaluatorSlot>& slots,
                                                          absl::Time now) {
  if (!tracker_.idle()) return CheckRunning(slots, now);
  const std::optional<NextEvaluation> next = FindNextEvaluation(rule_, committed, done);
  if (!next.has_value()) return std::nullopt;
  const auto first_try = tracker_.Begin(job_, sets_[next->set].set.name(), *next, slots, now);
  if (!first_try.has_value()) return std::nullopt;
  int64_t& begun = begun_[next->set];
  if (next->version > begun) skipped_ += next->skipped;
  begun = next->version;
  const absl::Status status = Direct(*first_try, slots);
  if (status.ok()) return std::nullopt;
  return EndedOf(*first_try, StrCat("cannot be stored: ", Message(status)));
}

JobEvaluations::Ended JobEvaluations::EndedOf(const EvaluationTracker::Running& running,
                                              const std::string& problem) const {
  const std::string& name = sets_[running.set].set.name();
  return {name, running.version, std::nullopt,
          problem.empty()
              ? ""
              : StrCat("evaluation ", name, " of version ", running.version, " ", problem)};
}

std::optional<JobEvaluations::Ended> JobEvaluations::CheckRunning(
    const std::vector<EvaluatorSlot>& slots, absl::Time now) {
  const EvaluationTracker::Running running = *tracker_.running();
  const absl::StatusOr<EvaluationState> state = store_.Read(running.id);
  if (state.ok()) {
    if (!state->abandoned.empty()) tracker_.Fail(state->abandoned);
    const bool all = state->answered == NumSamples(sets_[running.set]);
    if (all && state->policy.version < running.version) {
      tracker_.Fail(
          StrCat("rollout ", running.worker, " answered with version ", state->policy.version));
    } else if (!state->rows.empty()) {
      return Finish(*state, now);
    } else if (all) {
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
    return EndedOf(running, StrCat("cannot be stored: ", Message(status)));
  }
  Ended ended = EndedOf(running, "");
  ended.error = std::move(outcome.given_up);
  return ended;
}

JobEvaluations::Ended JobEvaluations::Finish(const EvaluationState& state, absl::Time now) const {
  const EvaluationTracker::Running& running = *tracker_.running();
  absl::StatusOr<EvalMetrics> metrics = SummarizeEvaluation(sets_[running.set].set, state);
  if (!metrics.ok()) return EndedOf(running, StrCat("failed: ", Message(metrics.status())));
  metrics->eval_seconds = absl::ToDoubleSeconds(now - running.begun);
  Ended ended = EndedOf(running, "");
  ended.metrics = *std::move(metrics);
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
