#include "local/local_services.h"

#include <algorithm>
#include <string>

#include "base/status_macros.h"
#include "rollout/environment/grpc/grpc_environment_client.h"
#include "services/reward/service/grpc_scorer.h"
#include "services/reward/service/http_scorer.h"
#include "services/runtime/channel.h"

namespace freshet {
namespace {

absl::StatusOr<std::shared_ptr<grpc::Channel>> Connect(const std::string& address) {
  return runtime::MakeChannel(address, {});
}

}  // namespace

absl::StatusOr<ServiceScorers> ConnectedScorers(const runtime::RewardFlags& offered) {
  ServiceScorers scorers;
  scorers.remote = GrpcScorers(Connect, offered.python_rewards, /*cache=*/nullptr);
  FRESHET_ASSIGN_OR_RETURN(scorers.sandbox, SandboxScorers(offered.sandbox, /*cache=*/nullptr));
  FRESHET_ASSIGN_OR_RETURN(scorers.judge, JudgeScorers(offered.judge, /*cache=*/nullptr));
  FRESHET_ASSIGN_OR_RETURN(scorers.reward_model,
                           RewardModelScorers(offered.reward_model, /*cache=*/nullptr));
  return scorers;
}

std::unique_ptr<EnvironmentClient> ConnectEnvironment(const job::v1::Environment& environment,
                                                      const Clock& clock) {
  GrpcEnvironmentClientOptions options;
  options.step_timeout = absl::Milliseconds(environment.step_timeout_ms());
  options.episode_timeout =
      std::max(options.episode_timeout,
               absl::Milliseconds(environment.max_time_ms()) + 2 * options.step_timeout);
  auto client = std::make_unique<GrpcEnvironmentClient>(Connect, clock, options);
  client->SetAddresses({environment.address()});
  return client;
}

}  // namespace freshet
