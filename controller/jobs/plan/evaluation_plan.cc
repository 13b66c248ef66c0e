#include "controller/jobs/plan/evaluation_plan.h"

#include <algorithm>
#include <tuple>

#include "base/str_cat.h"

namespace freshet {

DueEvaluation FindDueEvaluation(const EvaluationRule& rule, int64_t committed, int64_t begun) {
  DueEvaluation due;
  const int64_t reached = std::min(committed, rule.last);
  if (reached < 0) return due;
  const int64_t newest = reached == rule.last ? reached : reached - reached % rule.every;
  if (newest <= begun) return due;
  due.version = newest;
  // Multiples of `every` in (begun, newest].
  const int64_t upto = (newest + rule.every - 1) / rule.every;        // in [0, newest)
  const int64_t begun_upto = begun < 0 ? 0 : begun / rule.every + 1;  // in [0, begun]
  due.skipped = std::max<int64_t>(0, upto - begun_upto);
  return due;
}

std::optional<NextEvaluation> FindNextEvaluation(const EvaluationRule& rule, int64_t committed,
                                                 const std::vector<int64_t>& done) {
  std::optional<NextEvaluation> next;
  const int64_t furthest = done.empty() ? -1 : *std::max_element(done.begin(), done.end());
  for (size_t set = 0; set < done.size(); ++set) {
    DueEvaluation due = FindDueEvaluation(rule, std::min(furthest, committed), done[set]);
    if (!due.version.has_value()) due = FindDueEvaluation(rule, committed, done[set]);
    if (!due.version.has_value() || (next.has_value() && done[next->set] <= done[set])) continue;
    next = NextEvaluation{set, *due.version, due.skipped};
  }
  return next;
}

std::optional<EvaluationTracker::Running> EvaluationTracker::Direct(
    const std::vector<EvaluatorSlot>& slots, absl::Time now) {
  // Smaller is better: a worker other than the one that failed, one that still holds the version,
  // then the oldest version.
  const auto rank = [this](const EvaluatorSlot& slot) {
    const bool failed = slot.worker == running_->worker;
    const bool holds = last_.has_value() && last_->version == running_->version &&
                       last_->worker == slot.worker && last_->assignment_id == slot.assignment_id;
    return std::make_tuple(failed, !holds, slot.policy);
  };
  const EvaluatorSlot* best = nullptr;
  for (const EvaluatorSlot& slot : slots) {
    if (slot.policy.version < running_->version) continue;
    if (best == nullptr || rank(slot) < rank(*best)) best = &slot;
  }
  if (best == nullptr) return std::nullopt;
  ++running_->tries;
  running_->id = StrCat(job_, "/eval/", name_, "/", running_->version, "/", running_->tries, "/",
                        absl::ToUnixMicros(now));
  running_->worker = best->worker;
  running_->epoch = best->epoch;
  running_->assignment_id = best->assignment_id;
  running_->tried = now;
  last_error_.clear();
  last_ = running_;
  return running_;
}

std::optional<EvaluationTracker::Running> EvaluationTracker::Begin(
    const std::string& job, const std::string& name, const NextEvaluation& next,
    const std::vector<EvaluatorSlot>& slots, absl::Time now) {
  job_ = job;
  name_ = name;
  running_ = Running{};
  running_->set = next.set;
  running_->version = next.version;
  running_->begun = now;
  std::optional<Running> begun = Direct(slots, now);
  if (!begun.has_value()) running_.reset();
  return begun;
}

EvaluationTracker::Outcome EvaluationTracker::Check(const std::vector<EvaluatorSlot>& slots,
                                                    absl::Time now) {
  Outcome outcome;
  if (!running_.has_value()) return outcome;
  if (running_->answered) {
    if (now - running_->answered_at < deadline_) return outcome;
    outcome.given_up =
        StrCat("evaluation ", name_, " of version ", running_->version,
               " was given up: scoring its rows took more than ", absl::FormatDuration(deadline_));
    running_.reset();
    return outcome;
  }
  const bool there = std::any_of(slots.begin(), slots.end(), [this](const EvaluatorSlot& slot) {
    return slot.worker == running_->worker && slot.epoch == running_->epoch &&
           slot.assignment_id == running_->assignment_id;
  });
  const bool late = now - running_->tried >= deadline_;
  if (there && !late && last_error_.empty()) return outcome;
  const std::string why = !last_error_.empty() ? last_error_
                          : !there             ? StrCat("rollout ", running_->worker, " is gone")
                                   : StrCat("rollout ", running_->worker, " took more than ",
                                            absl::FormatDuration(deadline_));
  if (running_->tries >= max_tries_) {
    outcome.given_up = StrCat("evaluation ", name_, " of version ", running_->version,
                              " was given up after ", running_->tries, " tries: ", why);
    running_.reset();
    return outcome;
  }
  outcome.retry = Direct(slots, now);  // none: retried at the next Check
  return outcome;
}

void EvaluationTracker::Fail(const std::string& error) {
  if (!running_.has_value()) return;
  running_->answered = false;
  last_error_ = error.empty() ? "no reason was given" : error;
}

void EvaluationTracker::SetAnswered(absl::Time now) {
  if (!running_.has_value() || running_->answered) return;
  running_->answered = true;
  running_->answered_at = now;
}

}  // namespace freshet
