#ifndef FRESHET_ROLLOUT_OPENAI_ROLLOUT_ENDPOINT_H_
#define FRESHET_ROLLOUT_OPENAI_ROLLOUT_ENDPOINT_H_

#include <cstddef>

#include "base/clock.h"
#include "model/model_config.h"
#include "rollout/generation/generation_queue.h"
#include "rollout/openai/api_service.h"
#include "rollout/sessions/session_registry.h"

namespace freshet::openai {

struct RolloutEndpointOptions {
  ApiServiceOptions api;  // without `sessions`
  GenerationQueueOptions queue;
  size_t max_sessions = 65536;  // the most that environment.max_concurrent allows
};

// What requests to an engine of this model are checked against.
ServedModel MakeServedModel(const ModelConfig& config, const EngineStats& engine);

// OpenAI's API on the engine of a job, with sessions; an EndpointPort serves it. Requests are
// answered while a RolloutWorker drives queue(); otherwise they get status 503. Thread-safe.
class RolloutEndpoint {
 public:
  // Engine, tokenizer and clock must outlive the endpoint.
  RolloutEndpoint(InferenceEngine& engine, const Tokenizer& tokenizer, const Clock& clock,
                  RolloutEndpointOptions options);

  GenerationQueue& queue() { return queue_; }
  SessionRegistry& sessions() { return sessions_; }
  ApiService& service() { return service_; }

 private:
  SessionRegistry sessions_;
  GenerationQueue queue_;
  ApiService service_;  // uses the members above
};

}  // namespace freshet::openai

#endif  // FRESHET_ROLLOUT_OPENAI_ROLLOUT_ENDPOINT_H_
