#include "controller/jobs/plan/work_failures.h"

#include <algorithm>
#include <cstddef>

#include "base/backoff.h"
#include "base/str_cat.h"
#include "services/worker/role_name.h"

namespace freshet {
namespace {

using cluster::v1::ROLE_TRAINER;

bool MayPass(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kAborted ||
         code == absl::StatusCode::kFailedPrecondition;
}

}  // namespace

void WorkFailures::OnStep() {
  lasting_.clear();
  std::erase_if(rows_, [](const auto& row) { return row.second.role == ROLE_TRAINER; });
}

int WorkFailures::CountInRow(const WorkFailure& failure, absl::Time now) {
  // A worker without a failure for twice the longest pause starts over with the first pause. For a
  // trainer only a committed step does that (OnStep).
  const absl::Duration well = 2 * timing_.retry_most;
  std::erase_if(rows_, [&](const auto& row) {
    return row.second.role != ROLE_TRAINER && now - row.second.last > well;
  });
  Row& row = rows_[failure.worker];
  row.role = failure.role;
  row.last = now;
  return ++row.failures;
}

FailureDecision WorkFailures::Add(const WorkFailure& failure, absl::Time now) {
  FailureDecision decision;
  decision.in_row = CountInRow(failure, now);
  decision.pause = BackoffDelay(decision.in_row, timing_.retry_first, timing_.retry_most);
  const char* role = RoleName(failure.role);
  decision.reason =
      StrCat(role, " ", failure.worker, ": ", failure.error.empty() ? "failed" : failure.error);
  const bool passes = MayPass(failure.code);
  if (failure.role == ROLE_TRAINER) {
    decision.ends_job = !passes || decision.in_row >= timing_.trainer_failures;
    if (passes) decision.reason += StrCat(" (", decision.in_row, " times in a row without a step)");
    return decision;
  }
  if (passes) {
    decision.reason += StrCat(" (", decision.in_row, " times in a row)");
    return decision;
  }
  std::map<std::string, Errors>& of_role = lasting_[failure.role];
  Errors& errors = of_role[failure.worker];
  errors.emplace_back(now, failure.error);
  const absl::Time since = now - timing_.failure_window;
  const auto most = static_cast<size_t>(timing_.worker_failures);
  if (errors.size() > most) errors.pop_front();
  std::erase_if(of_role, [&](const auto& entry) { return entry.second.back().first < since; });
  std::map<std::string, absl::Time>& seen = seen_[failure.role];
  seen[failure.worker] = now;
  std::erase_if(seen, [&](const auto& entry) { return entry.second < since; });
  const auto fails = [&](const std::string& worker) {
    const auto found = of_role.find(worker);
    return found != of_role.end() && found->second.size() == most &&
           found->second.front().first >= since;
  };
  const std::string window = absl::FormatDuration(timing_.failure_window);
  if (!std::all_of(seen.begin(), seen.end(), [&](const auto& e) { return fails(e.first); })) {
    decision.reason +=
        StrCat(" (", decision.in_row, " times in a row; ", most, " failures of each ", role,
               " worker within ", window, " without a step end the job)");
    return decision;
  }
  std::map<std::string, int> texts;
  for (const auto& [worker, errors_of_one] : of_role) {
    for (const auto& [time, text] : errors_of_one) ++texts[text];
  }
  const auto commonest = std::max_element(
      texts.begin(), texts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  decision.ends_job = true;
  decision.reason = StrCat("each ", role, " worker failed ", most, " times within ", window,
                           " without a committed step; most often (", commonest->second,
                           " times): ", commonest->first, "; the last one: ", failure.worker);
  return decision;
}

}  // namespace freshet
