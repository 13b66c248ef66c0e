#ifndef FRESHET_ROLLOUT_ENVIRONMENT_HTTP_HTTP_AGENT_CLIENT_H_
#define FRESHET_ROLLOUT_ENVIRONMENT_HTTP_HTTP_AGENT_CLIENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "rollout/environment/agent_client.h"
#include "services/runtime/http_calls.h"

namespace freshet {

// The body of the request that starts an episode. Pure.
std::string AgentRequestBody(const AgentTask& task);
// The result of an episode from the status and the body of the agent's answer. Errors: see
// AgentClient. Pure.
absl::StatusOr<AgentReward> ParseAgentAnswer(int http_status, const std::string& body);

// An agent behind HTTP: POST of AgentRequestBody, answered at the end of the episode.
class HttpAgentClient final : public AgentClient {
 public:
  // `address` is HOST:PORT or http://HOST:PORT/PATH, whose host is looked up for each call.
  // INVALID_ARGUMENT: it is neither.
  static absl::StatusOr<std::unique_ptr<HttpAgentClient>> Open(const std::string& address);
  // Calls go to `path` of the server.
  HttpAgentClient(std::unique_ptr<runtime::HttpCalls> calls, std::string path)
      : calls_(std::move(calls)), path_(std::move(path)) {}

  void Start(int64_t episode, const AgentTask& task) override;
  void Stop(int64_t episode) override;
  std::vector<AgentEvent> Poll() override;

 private:
  struct Call {
    int64_t episode = 0;
    int status = 0;
    std::string body;
  };

  const std::unique_ptr<runtime::HttpCalls> calls_;
  const std::string path_;
  std::map<int64_t, Call> open_;           // by number of the call
  std::map<int64_t, int64_t> by_episode_;  // number of its call
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENVIRONMENT_HTTP_HTTP_AGENT_CLIENT_H_
