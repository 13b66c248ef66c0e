#include "rollout/server_engine/server_protocol.h"

#include <algorithm>

#include "base/str_cat.h"

namespace freshet {

absl::Status CheckSampling(const GenerationRequest& request, const ServerTraits& server,
                           const ModelConfig& model) {
  const SamplingParams& sampling = request.sampling;
  const char* name = sampling.Penalizes()           ? "a penalty"
                     : !sampling.logit_bias.empty() ? "logit_bias"
                     : sampling.min_new_tokens > 0  ? "min_new_tokens"
                     : sampling.top_logprobs > 0    ? "top_logprobs"
                     : request.lane == Lane::kRollout && sampling.Truncates()
                         ? "top_p, top_k or min_p"
                         : nullptr;
  if (name != nullptr) {
    return InvalidArgument("request ", request.id, ": the engine ", server.engine,
                           " does not support ", name);
  }
  if (sampling.temperature > 0 && sampling.temperature < server.min_temperature) {
    return InvalidArgument("request ", request.id, ": the engine ", server.engine,
                           " supports temperature 0 and from ", server.min_temperature, ", got ",
                           sampling.temperature);
  }
  if (!server.stops_at_eos || sampling.stop_ids.empty()) return absl::OkStatus();
  for (const int32_t id : model.eos_token_ids) {
    if (std::ranges::find(sampling.stop_ids, id) != sampling.stop_ids.end()) continue;
    return InvalidArgument("request ", request.id, ": the engine ", server.engine,
                           " also stops at the model's end token ", id,
                           ", which the stop tokens lack");
  }
  return absl::OkStatus();
}

}  // namespace freshet
