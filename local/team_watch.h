#ifndef FRESHET_LOCAL_TEAM_WATCH_H_
#define FRESHET_LOCAL_TEAM_WATCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "controller/jobs/plan/team_plan.h"
#include "datastore/trajectory_store.h"
#include "job/job_schema.h"

namespace freshet {

// Finds when the run of a team's policy ends because a partner has ended: see FindTeamEnd. Not
// thread-safe.
class TeamWatch {
 public:
  // `ended_policy`: the first policy of the team that has ended, or ""; null without a team.
  // `clock` must outlive this object.
  TeamWatch(std::function<std::string()> ended_policy, const JobSpec& spec, const Clock& clock);

  // Why the run ends now, or "". Call it regularly. Errors: those of the store.
  absl::StatusOr<std::string> Look(TrajectoryStore& store);

 private:
  const std::function<std::string()> ended_policy_;
  const int64_t steps_;
  const int64_t groups_per_step_;
  const Clock& clock_;
  std::vector<EndedPartner> partners_;  // the first
  int64_t progress_mark_ = -1;
  absl::Time last_progress_ = absl::InfinitePast();
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_TEAM_WATCH_H_
