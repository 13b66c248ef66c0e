#include "local/team_watch.h"

#include <utility>

#include "base/status_macros.h"
#include "controller/jobs/plan/controller_timing.h"
#include "controller/jobs/plan/watchdog.h"

namespace freshet {

TeamWatch::TeamWatch(std::function<std::string()> ended_policy, const JobSpec& spec,
                     const Clock& clock)
    : ended_policy_(std::move(ended_policy)),
      steps_(spec.trainer().steps()),
      groups_per_step_(spec.prompts_per_step()),
      clock_(clock) {}

absl::StatusOr<std::string> TeamWatch::Look(TrajectoryStore& store) {
  if (ended_policy_ == nullptr) return "";
  const absl::Time now = clock_.Now();
  if (partners_.empty()) {
    const std::string policy = ended_policy_();
    if (policy.empty()) return "";
    partners_.push_back({policy, now});
  }
  FRESHET_ASSIGN_OR_RETURN(const StoreStats stats, store.Stats());
  FRESHET_ASSIGN_OR_RETURN(const Explanation explanation, store.Explain());
  const int64_t mark = ProgressMark(stats);
  if (std::exchange(progress_mark_, mark) != mark) last_progress_ = now;
  return FindTeamEnd(partners_, {stats, explanation.edge, steps_, groups_per_step_, last_progress_},
                     ControllerTiming(), now);
}

}  // namespace freshet
