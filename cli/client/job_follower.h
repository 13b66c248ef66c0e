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
  // Begin with the job's first event; otherwise with the recent ones.
  bool from_start = false;
  // Time for all of it; infinite without a limit.
  absl::Duration timeout = absl::InfiniteDuration();
  // How long a lost connection is tried again.
  absl::Duration patience = absl::Seconds(60);
  // The first Ctrl-C says how to go on and a second one ends; otherwise the first one ends.
  bool ask_twice = false;
};

// Follows a job to its end and returns the exit code: 0, 5 or 6 as the job ended, 8 at the time
// limit, 7 when the connection stays lost, 130 after Ctrl-C when `ask_twice`, else 0. Texts go to
// `write`. The job itself is never touched.
int FollowJob(const Session& session, const std::string& job_id, const FollowOptions& options,
              const Terminal& terminal, const std::function<void(std::string_view)>& write);

}  // namespace freshet

#endif  // FRESHET_CLI_CLIENT_JOB_FOLLOWER_H_
