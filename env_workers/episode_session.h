#ifndef FRESHET_ENV_WORKERS_EPISODE_SESSION_H_
#define FRESHET_ENV_WORKERS_EPISODE_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "env_workers/environment.h"

namespace freshet {

// The order of calls that an episode's client must keep, and the bounds on what it sends. Serves
// episodes one after the other. Confined to one thread at a time.
class EpisodeSession {
 public:
  static constexpr size_t kMaxActionBytes = 1 << 20;
  static constexpr size_t kMaxOptions = 256;
  static constexpr size_t kMaxOptionBytes = 1 << 20;  // names and values together

  // `environments` must outlive the session.
  explicit EpisodeSession(const EnvironmentRegistry& environments) : environments_(environments) {}

  // INVALID_ARGUMENT: an unknown environment, or options that it does not take.
  absl::StatusOr<EnvironmentReply> Reset(const std::string& environment, uint64_t seed,
                                         const EnvironmentOptions& options);
  // FAILED_PRECONDITION: no episode is running. INVALID_ARGUMENT: an action beyond kMaxActionBytes.
  // INTERNAL: the environment broke its contract. Any error ends the episode.
  absl::StatusOr<EnvironmentReply> Step(std::string_view action);

  bool running() const { return running_; }
  // Of the episode that runs or ran last; "" before the first.
  const std::string& environment() const { return name_; }
  // Steps of that episode.
  int64_t turns() const { return turns_; }

 private:
  const EnvironmentRegistry& environments_;
  std::string name_;
  std::unique_ptr<Environment> environment_;
  bool running_ = false;
  int64_t turns_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_ENV_WORKERS_EPISODE_SESSION_H_
