#include "rollout/sessions/whole_response.h"

#include <cstddef>

namespace freshet {

void AppendWithoutLoss(const std::vector<int32_t>& ids, Response& response) {
  response.response_ids.insert(response.response_ids.end(), ids.begin(), ids.end());
  const size_t size = response.response_ids.size();
  response.behavior_logprobs.resize(size, 0.0F);
  if (!response.sampling_logprobs.empty()) response.sampling_logprobs.resize(size, 0.0F);
  response.loss_mask.resize(size, 0);
  if (!response.spans.empty()) response.spans.back().end = static_cast<int32_t>(size);
}

Response WithPrompt(const std::vector<int32_t>& prompt, const Response& after) {
  Response whole;
  AppendWithoutLoss(prompt, whole);
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(whole.response_ids, after.response_ids);
  append(whole.behavior_logprobs, after.behavior_logprobs);
  append(whole.loss_mask, after.loss_mask);
  if (!after.sampling_logprobs.empty()) {
    whole.sampling_logprobs.resize(prompt.size(), 0.0F);
    append(whole.sampling_logprobs, after.sampling_logprobs);
  }
  const auto shift = static_cast<int32_t>(prompt.size());
  for (Span span : after.spans) {
    span.begin = span.begin == 0 ? 0 : span.begin + shift;
    span.end += shift;
    whole.spans.push_back(span);
  }
  for (const auto& [end, reward] : after.step_rewards) {
    whole.step_rewards.push_back({end + shift, reward});
  }
  whole.finish = after.finish;
  whole.env_reward = after.env_reward;
  return whole;
}

}  // namespace freshet
