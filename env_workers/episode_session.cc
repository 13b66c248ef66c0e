#include "env_workers/episode_session.h"

#include <cmath>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

absl::StatusOr<EnvironmentReply> EpisodeSession::Reset(const std::string& environment,
                                                       uint64_t seed,
                                                       const EnvironmentOptions& options) {
  running_ = false;
  size_t bytes = 0;
  for (const auto& [name, value] : options) bytes += name.size() + value.size();
  if (options.size() > kMaxOptions || bytes > kMaxOptionBytes) {
    return InvalidArgument("options: ", options.size(), " entries of ", bytes, " bytes; at most ",
                           kMaxOptions, " of ", kMaxOptionBytes);
  }
  if (environment_ == nullptr || environment != name_) {
    FRESHET_ASSIGN_OR_RETURN(environment_, environments_.Make(environment));
    name_ = environment;
  }
  turns_ = 0;
  FRESHET_ASSIGN_OR_RETURN(EnvironmentReply reply, environment_->Reset(seed, options));
  running_ = true;
  return reply;
}

absl::StatusOr<EnvironmentReply> EpisodeSession::Step(std::string_view action) {
  if (!running_) return FailedPrecondition("no episode is running; send a reset first");
  running_ = false;
  if (action.size() > kMaxActionBytes) {
    return InvalidArgument("action: ", action.size(), " bytes; at most ", kMaxActionBytes);
  }
  FRESHET_ASSIGN_OR_RETURN(EnvironmentReply reply, environment_->Step(action));
  if (!std::isfinite(reply.reward)) {
    return Internal("environment ", name_, " gave a reward that is not finite");
  }
  ++turns_;
  running_ = !reply.terminated && !reply.truncated;
  return reply;
}

}  // namespace freshet
