#ifndef FRESHET_LOCAL_LOCAL_AGENT_H_
#define FRESHET_LOCAL_LOCAL_AGENT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "local/job_setup.h"
#include "rollout/engine/native_engine.h"
#include "rollout/environment/agent_client.h"
#include "rollout/openai/endpoint_port.h"
#include "rollout/openai/rollout_endpoint.h"
#include "rollout/worker/agent_runner.h"

namespace freshet {

// The agent of a job, and the endpoint on a loopback port through which it generates.
class LocalAgent {
 public:
  // Setup, engine and clock must outlive the agent. Returns errors of HttpAgentClient::Open and
  // EndpointPort::Start.
  static absl::StatusOr<std::unique_ptr<LocalAgent>> Start(const JobSetup& setup,
                                                           NativeEngine& engine,
                                                           const Clock& clock);

  Episodes& episodes() { return *runner_; }
  GenerationQueue& queue() { return endpoint_->queue(); }

 private:
  LocalAgent() = default;

  std::unique_ptr<AgentClient> client_;
  std::unique_ptr<openai::RolloutEndpoint> endpoint_;
  std::unique_ptr<openai::EndpointPort> port_;  // serves it, so it ends first
  std::unique_ptr<AgentRunner> runner_;
};

}  // namespace freshet

#endif  // FRESHET_LOCAL_LOCAL_AGENT_H_
