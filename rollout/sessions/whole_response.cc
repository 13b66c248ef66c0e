#include "rollout/sessions/whole_response.h"

#include <cstddef>
#include <utility>

#include "base/random.h"

namespace freshet {
namespace {

// Separates the seeds of segments from each other and from other uses of a seed.
constexpr uint64_t kSegmentStream = 0x7365676dULL;

template <typename T>
void Extend(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

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
  Extend(whole.response_ids, after.response_ids);
  Extend(whole.behavior_logprobs, after.behavior_logprobs);
  Extend(whole.loss_mask, after.loss_mask);
  if (!after.sampling_logprobs.empty()) {
    whole.sampling_logprobs.resize(prompt.size(), 0.0F);
    Extend(whole.sampling_logprobs, after.sampling_logprobs);
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

uint64_t SegmentSeed(uint64_t seed, size_t segment) {
  return segment == 0 ? seed : RandomBits(seed, kSegmentStream, segment);
}

Response JoinSegments(std::vector<Response> segments) {
  Response joined = std::move(segments.front());
  if (segments.size() == 1) return joined;
  joined.segments = {0};
  for (size_t i = 1; i < segments.size(); ++i) {
    const Response& next = segments[i];
    const size_t before = joined.response_ids.size();
    const auto shift = static_cast<int32_t>(before);
    if (!joined.sampling_logprobs.empty() || !next.sampling_logprobs.empty()) {
      if (joined.sampling_logprobs.empty()) joined.sampling_logprobs = joined.behavior_logprobs;
      Extend(joined.sampling_logprobs,
             next.sampling_logprobs.empty() ? next.behavior_logprobs : next.sampling_logprobs);
    }
    Extend(joined.response_ids, next.response_ids);
    Extend(joined.behavior_logprobs, next.behavior_logprobs);
    Extend(joined.loss_mask, next.loss_mask);
    for (const Span& span : next.spans) {
      joined.spans.push_back({span.policy, span.begin + shift, span.end + shift});
    }
    for (const auto& [end, reward] : next.step_rewards) {
      joined.step_rewards.push_back({end + shift, reward});
    }
    joined.segments.push_back(shift);
    joined.finish = next.finish;
    joined.env_reward = next.env_reward;
  }
  return joined;
}

}  // namespace freshet
