#ifndef FRESHET_ROLLOUT_OPENAI_ROLLOUT_ENDPOINT_H_
#define FRESHET_ROLLOUT_OPENAI_ROLLOUT_ENDPOINT_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "rollout/generation/generation_queue.h"
#include "rollout/openai/api_service.h"
#include "rollout/sessions/session_registry.h"
#include "services/runtime/http_server.h"

namespace freshet::openai {

struct RolloutEndpointOptions {
  std::string listen = "127.0.0.1:0";
  ApiServiceOptions api;  // without `sessions`
  GenerationQueueOptions queue;
  size_t max_sessions = 4096;
};

// OpenAI's API on the engine of a rollout, with sessions. Requests are served while a RolloutWorker
// drives queue(); otherwise they get status 503. Thread-safe.
class RolloutEndpoint {
 public:
  // Engine, tokenizer and clock must outlive the endpoint. Returns errors of HttpServer::Start.
  static absl::StatusOr<std::unique_ptr<RolloutEndpoint>> Start(InferenceEngine& engine,
                                                                const Tokenizer& tokenizer,
                                                                const Clock& clock,
                                                                RolloutEndpointOptions options);

  GenerationQueue& queue() { return queue_; }
  SessionRegistry& sessions() { return sessions_; }
  // "http://HOST:PORT/v1"
  std::string base_url() const;

 private:
  RolloutEndpoint(InferenceEngine& engine, const Tokenizer& tokenizer, const Clock& clock,
                  RolloutEndpointOptions options);

  SessionRegistry sessions_;
  GenerationQueue queue_;
  ApiService service_;
  std::unique_ptr<runtime::HttpServer> server_;  // uses the members above
};

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_ROLLOUT_ENDPOINT_H_
