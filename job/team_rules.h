#ifndef FRESHET_JOB_TEAM_RULES_H_
#define FRESHET_JOB_TEAM_RULES_H_

#include <vector>

#include "job/job_parser.h"

namespace freshet {

// Checks what the jobs of a team share, and adds errors to the jobs that differ. Pure.
void CheckTeamRules(std::vector<JobResult>& jobs);

}  // namespace freshet

#endif  // FRESHET_JOB_TEAM_RULES_H_
