#ifndef FRESHET_CLI_CLIENT_JOB_FOLLOWER_H_
#define FRESHET_CLI_CLIENT_JOB_FOLLOWER_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "cli/client/session.h"

namespace freshet {

struct FollowOptions {
  enum class Show { kNothing, kEvents, kJson };
  Show show = Show::kEvents;
  // Start with the job's first event instead of the recent ones.
  bool from_start = false;
  // Total time limit; infinite for none.
  absl::Duration timeout = absl::InfiniteDuration();
  absl::Duration patience = absl::Seconds(60);
  // The first Ctrl-C prints the commands to continue and a second one exits; otherwise the first
  // one exits.
  bool ask_twice = false;
};

// Follows a job to its end and returns the exit code: 0, 5 or 6 depending on how the job ended, 8
// at the time limit, 7 if the connection stays lost, 130 after Ctrl-C if `ask_twice`, else 0.
// Output goes to `write`. Never modifies the job.
int FollowJob(const Session& session, const std::string& job_id, const FollowOptions& options,
              const Terminal& terminal, const std::function<void(std::string_view)>& write);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_JOB_FOLLOWER_H_
