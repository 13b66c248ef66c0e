#ifndef FRESHET_ENV_WORKERS_EPISODE_SESSION_H_
#define FRESHET_ENV_WORKERS_EPISODE_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "env_workers/environment.h"

namespace freshet {

// Enforces the order of a client's calls and the bounds on their sizes. Serves one episode after
// another. Not thread-safe.
class EpisodeSession {
 public:
  static constexpr size_t kMaxActionBytes = 1 << 20;
  static constexpr size_t kMaxOptions = 256;
  static constexpr size_t kMaxOptionBytes = 1 << 20;  // names and values together

  // `environments` must outlive the session.
  explicit EpisodeSession(const EnvironmentRegistry& environments) : environments_(environments) {}

  // INVALID_ARGUMENT: unknown environment or invalid options.
  absl::StatusOr<EnvironmentReply> Reset(const std::string& environment, uint64_t seed,
                                         const EnvironmentOptions& options);
  // FAILED_PRECONDITION: no episode is running. INVALID_ARGUMENT: an action beyond kMaxActionBytes.
  // INTERNAL: the environment broke its contract. Any error ends the episode.
  absl::StatusOr<EnvironmentReply> Step(std::string_view action);

  bool running() const { return running_; }
  // Of the current or last episode; "" before the first.
  const std::string& environment() const { return name_; }
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
