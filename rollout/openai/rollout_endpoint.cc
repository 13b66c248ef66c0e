#include "rollout/openai/rollout_endpoint.h"

#include <algorithm>
#include <utility>

#include "rollout/engine/kv_cache.h"

namespace freshet::openai {
namespace {

ApiServiceOptions WithSessions(ApiServiceOptions options, SessionRegistry& sessions) {
  options.sessions = &sessions;
  return options;
}

}  // namespace

ServedModel MakeServedModel(const ModelConfig& config, const EngineStats& engine) {
  ServedModel model{config.max_position_embeddings, config.vocab_size, config.eos_token_ids,
                    engine.cache_blocks};
  if (engine.cache_blocks > 0) {
    // One block for the copy of a prompt's last, partly filled block.
    model.context = std::min(model.context, (engine.cache_blocks - 1) * kKvBlockTokens);
  }
  return model;
}

RolloutEndpoint::RolloutEndpoint(InferenceEngine& engine, const Tokenizer& tokenizer,
                                 const Clock& clock, RolloutEndpointOptions options)
    : sessions_(tokenizer, options.max_sessions),
      queue_(engine, options.queue, clock),
      service_(WithSessions(std::move(options.api), sessions_), tokenizer, queue_, clock) {
  queue_.Close("the rollout has not started");
}

}  // namespace freshet::openai
