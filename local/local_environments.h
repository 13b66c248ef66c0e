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

// Episodes of environments that run in this process, on the caller's thread: every answer is there
// at once, in the order of the calls. Confined to one thread.
class LocalEnvironments final : public EnvironmentClient {
 public:
  // `environments` must outlive this object.
  explicit LocalEnvironments(const EnvironmentRegistry& environments)
      : environments_(environments) {}

  void Reset(int64_t episode, const EpisodeStart& start) override;
  void Step(int64_t episode, std::string action) override;
  void Close(int64_t episode) override;
  std::vector<EpisodeEvent> Poll() override;
  // Returns at once: an answer comes with its call or never.
  void Await(absl::Duration timeout) override;

 private:
  void Answer(int64_t episode, absl::StatusOr<EnvironmentReply> reply);

  const EnvironmentRegistry& environments_;
  std::map<int64_t, EpisodeSession> open_;
  std::vector<EpisodeEvent> events_;
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_LOCAL_ENVIRONMENTS_H_
