#include "controller/jobs/driver/job_evaluations.h"

#include <utility>

#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int kMaxTries = 5;

}  // namespace

JobEvaluations::JobEvaluations(WorkerHub& hub, RewardGateway& rewards,
                               const ControllerTiming& timing, const Clock& clock, std::string job,
                               job::v1::JobSpec spec, std::shared_ptr<const JobInputs> inputs)
    : hub_(hub),
      rewards_(rewards),
      timing_(timing),
      clock_(clock),
      job_(std::move(job)),
      spec_(std::move(spec)),
      inputs_(std::move(inputs)),
      tracker_(timing.evaluation_deadline, kMaxTries) {}

JobEvaluations::~JobEvaluations() { Stop(); }

void JobEvaluations::Stop() {
  std::jthread scorer;
  {
    MutexLock lock(mu_);
    stopped_ = true;
    stopping_.NotifyAll();
    scorer = std::move(scorer_);
  }
}

bool JobEvaluations::idle() const {
  MutexLock lock(mu_);
  return tracker_.idle();
}

int64_t JobEvaluations::skipped() const {
  MutexLock lock(mu_);
  return skipped_;
}

void JobEvaluations::Direct(const EvaluationTracker::Running& running,
                            const std::vector<EvaluatorSlot>& slots) {
  cluster::v1::Directive directive;
  cluster::v1::Evaluate* evaluate = directive.mutable_evaluate();
  for (const EvaluatorSlot& slot : slots) {
    if (slot.worker != running.worker) continue;
    evaluate->set_assignment_id(slot.assignment_id);
    evaluate->mutable_policy()->set_lineage(slot.policy.lineage);
  }
  evaluate->set_evaluation_id(running.id);
  evaluate->mutable_policy()->set_version(running.version);
  evaluate->set_rows(NumRows(spec_, *inputs_, /*held_out=*/true));
  const absl::Status sent = hub_.Send(running.worker, running.epoch, directive);
  if (!sent.ok()) tracker_.Fail(running.id, Message(sent));
}

std::optional<JobEvaluations::Ended> JobEvaluations::Turn(int64_t committed, int64_t done_upto,
                                                          const std::vector<EvaluatorSlot>& slots,
                                                          std::vector<std::string> reward_addresses,
                                                          absl::Time now) {
  MutexLock lock(mu_);
  if (stopped_) return std::nullopt;
  reward_addresses_ = std::move(reward_addresses);
  if (result_.has_value()) {
    Ended ended;
    ended.version = tracker_.running()->version;
    if (result_->ok()) {
      ended.metrics = **result_;
      ended.metrics->eval_seconds = absl::ToDoubleSeconds(now - tracker_.running()->begun);
    } else {
      ended.error = StrCat("the evaluation of version ", ended.version,
                           " failed: ", Message(result_->status()));
    }
    result_.reset();
    tracker_.End();
    return ended;
  }
  if (!tracker_.idle()) {
    const int64_t version = tracker_.running()->version;
    EvaluationTracker::Outcome outcome = tracker_.Check(slots, now);
    if (outcome.retry.has_value()) Direct(*outcome.retry, slots);
    if (outcome.given_up.empty()) return std::nullopt;
    return Ended{version, std::nullopt, std::move(outcome.given_up)};
  }
  const EvaluationRule rule{spec_.eval().every_steps(), spec_.trainer().steps()};
  const DueEvaluation due = FindDueEvaluation(rule, committed, done_upto);
  if (!due.version.has_value()) return std::nullopt;
  const auto begun = tracker_.Begin(job_, *due.version, slots, now);
  if (!begun.has_value()) return std::nullopt;
  if (*due.version > begun_) skipped_ += due.skipped;
  begun_ = *due.version;
  Direct(*begun, slots);
  return std::nullopt;
}

void JobEvaluations::Report(const cluster::v1::ReportEvaluationRequest& report) {
  MutexLock lock(mu_);
  if (stopped_) return;
  if (!report.error().empty()) {
    tracker_.Fail(report.evaluation_id(), report.error());
    return;
  }
  if (!tracker_.Report(report.evaluation_id())) return;
  // Only one evaluation runs at a time: the former scorer has delivered its result and holds no
  // lock.
  scorer_ = std::jthread([this, report] { Score(report); });
}

void JobEvaluations::Score(const cluster::v1::ReportEvaluationRequest& report) {
  const absl::Time deadline = clock_.Now() + timing_.evaluation_deadline;
  EvaluationScoring scoring;
  scoring.call_deadline = timing_.score_deadline;
  scoring.reward_workers = [this] {
    MutexLock lock(mu_);
    return reward_addresses_;
  };
  scoring.stopped = [this, deadline] {
    MutexLock lock(mu_);
    return stopped_ || clock_.Now() >= deadline;
  };
  scoring.pause = [this] {
    MutexLock lock(mu_);
    if (!stopped_) stopping_.WaitFor(mu_, timing_.retry_first);
  };
  absl::StatusOr<EvalMetrics> result =
      ScoreEvaluation(job_, spec_, *inputs_, report, rewards_, scoring);
  {
    MutexLock lock(mu_);
    result_ = std::move(result);
  }
  hub_.Wake();
}

}  // namespace freshet
