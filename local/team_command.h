#ifndef FRESHET_LOCAL_TEAM_COMMAND_H_
#define FRESHET_LOCAL_TEAM_COMMAND_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "job/job_parser.h"
#include "local/local_command.h"

namespace freshet {

// `freshet local` for a job file with `policies`: one process for each, which runs in RUN/POLICY.
// Their lines are printed after their names; with --json rows get the key `policy`. When one fails,
// the others are stopped, and the exit code is that of the one that failed; kExitJobCancelled if
// one was interrupted by a signal of its own. When one ends without failure, the others end as
// FindTeamEnd decides. kExitInterrupted: a policy that was told to stop by Ctrl-C did not save.

// The policies that have runs below the folder, sorted; none if it is itself a run, or has no runs
// below. FAILED_PRECONDITION: the runs below are not those of one team's policies.
absl::StatusOr<std::vector<std::string>> FindPolicyRuns(const std::string& run_dir);

// Checks all jobs, then makes their folders and runs them. Returns the exit code.
int StartTeam(const LocalCommand& command, const std::vector<JobResult>& jobs);
// Resumes the runs of `policies` below command.resume_dir.
int ResumeTeam(const LocalCommand& command, const std::vector<std::string>& policies);

// In a process that a team's command has started: SIGHUP, which it gets when that command ends,
// is one SIGTERM. Does nothing in others. Call it from the command's start.
void EndWithTeam();

// In a process that a team's command has started: the first policy that has ended without failure,
// or "". Never blocks; call it on one thread. A null function in others.
std::function<std::string()> EndedPolicy();

// The overrides of one policy among those of the team: "policies.worker.seed=1" is "seed=1" for
// worker. INVALID_ARGUMENT: one is for a policy that is not among `policies`, or for the name or
// the team of a run.
absl::StatusOr<std::vector<std::string>> OverridesOf(const std::string& policy,
                                                     const std::vector<std::string>& policies,
                                                     const std::vector<std::string>& overrides);
// A line of a member's output as the team's command prints it; `width` is that of the longest name.
std::string TeamLine(const std::string& policy, size_t width, bool is_row, std::string_view line);

}  // namespace freshet

#endif  // FRESHET_LOCAL_TEAM_COMMAND_H_
