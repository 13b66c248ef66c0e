#ifndef FRESHET_LOCAL_LOCAL_ENVIRONMENTS_H_
#define FRESHET_LOCAL_LOCAL_ENVIRONMENTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "env_workers/environment.h"
#include "env_workers/episode_session.h"
#include "rollout/environment/environment_client.h"

namespace freshet {

// Runs environments synchronously in this process: every answer is available at once, in the order
// of the calls. Not thread-safe.
class LocalEnvironments final : public EnvironmentClient {
 public:
  // `environments` must outlive this object.
  explicit LocalEnvironments(const EnvironmentRegistry& environments)
      : environments_(environments) {}

  void Reset(int64_t episode, const EpisodeStart& start) override;
  void Step(int64_t episode, std::string action) override;
  void Close(int64_t episode) override;
  std::vector<EpisodeEvent> Poll() override;
  // Returns at once: there is never a pending answer.
  void Await(absl::Duration timeout) override;

 private:
  void Answer(int64_t episode, absl::StatusOr<EnvironmentReply> reply);

  const EnvironmentRegistry& environments_;
  std::map<int64_t, EpisodeSession> open_;
  std::vector<EpisodeEvent> events_;
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_LOCAL_ENVIRONMENTS_H_
