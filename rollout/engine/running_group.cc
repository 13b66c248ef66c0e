#include "rollout/engine/running_group.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/random.h"
#include "model/kv_cache_size.h"

namespace freshet {

std::vector<int32_t> Tokens(const RunningGroup& group, const std::vector<int32_t>& response) {
  std::vector<int32_t> tokens = group.request.prompt_ids;
  tokens.insert(tokens.end(), response.begin(), response.end());
  return tokens;
}

int64_t TokensToFeed(const RunningGroup& group) {
  int64_t tokens = group.prompt_size() - group.fed;
  for (const RunningSample& sample : group.samples) {
    tokens += std::ssize(sample.response.response_ids) - sample.fed;
  }
  return tokens;
}

int64_t BlocksWanted(const RunningGroup& group, int64_t draft_tokens) {
  const int64_t shared = group.prompt_size() / kKvBlockTokens;
  int64_t blocks = KvBlocks(group.prompt_size());
  for (const RunningSample& sample : group.samples) {
    const int64_t size = std::min<int64_t>(group.request.sampling.max_new_tokens,
                                           std::ssize(sample.response.response_ids) + draft_tokens);
    blocks += KvBlocks(group.prompt_size() + std::max(group.expected, size)) - shared;
  }
  return blocks;
}

int64_t BlocksHeld(const RunningGroup& group) {
  const int64_t shared = group.prompt_size() / kKvBlockTokens;
  int64_t blocks = std::ssize(group.blocks);
  for (const RunningSample& sample : group.samples) {
    if (sample.forked) blocks += std::ssize(sample.blocks) - shared;
  }
  return blocks;
}

void StartSampling(const GenerationRequest& request, RunningSample& sample) {
  const SamplingParams& sampling = request.sampling;
  const std::vector<int32_t>& kept = sample.response.response_ids;
  if (sampling.AdjustsLogits()) {
    sample.counts.prompt.insert(request.prompt_ids.begin(), request.prompt_ids.end());
    for (const int32_t id : kept) sample.counts.Add(id);
  }
  if (sampling.stop_strings != nullptr) {
    sample.stop_matcher = sampling.stop_strings->MakeMatcher();
    for (const int32_t id : kept) sample.stop_matcher->Add(id);
  }
}

void StartDrafting(RunningGroup& group) {
  group.lookup = std::make_unique<DraftLookup>(group.request.prompt_ids, std::ssize(group.samples),
                                               group.request.sampling.max_new_tokens);
  for (const RunningSample& sample : group.samples) {
    for (const int32_t id : sample.response.response_ids) group.lookup->Add(sample.number, id);
  }
}

SampledToken DrawNext(const GenerationRequest& request, const RunningSample& sample,
                      const float* logits, int64_t vocab_size) {
  const uint64_t bits =
      RandomBits(request.seed, static_cast<uint64_t>(request.ordinal),
                 static_cast<uint64_t>(sample.index), sample.response.response_ids.size());
  return SampleToken(logits, vocab_size, request.sampling, sample.counts, ToUniform(bits));
}

GeneratedToken Append(const GenerationRequest& request, RunningSample& sample, SampledToken token,
                      PolicyVersion policy) {
  Response& response = sample.response;
  const SamplingParams& sampling = request.sampling;
  if (sampling.AdjustsLogits()) sample.counts.Add(token.id);
  // Earlier tokens were sampled from the model's distribution, or are observations.
  if (response.sampling_logprobs.empty() && sampling.ChangesDistribution()) {
    response.sampling_logprobs = response.behavior_logprobs;
  }
  if (sampling.ChangesDistribution() || !response.sampling_logprobs.empty()) {
    response.sampling_logprobs.push_back(token.sampling_logprob);
  }
  response.response_ids.push_back(token.id);
  response.behavior_logprobs.push_back(token.logprob);
  response.loss_mask.push_back(1);
  const auto size = static_cast<int32_t>(response.response_ids.size());
  if (response.spans.empty() || response.spans.back().policy != policy) {
    response.spans.push_back({policy, size - 1, size});
  } else {
    response.spans.back().end = size;
  }
  const bool stop_string = sample.stop_matcher != nullptr && sample.stop_matcher->Add(token.id);
  if (stop_string || std::ranges::find(sampling.stop_ids, token.id) != sampling.stop_ids.end()) {
    response.finish = FinishReason::kStop;
  } else if (size >= sampling.max_new_tokens) {
    response.finish = FinishReason::kLength;
  }
  return {sample.index, std::move(token), policy, response.finish};
}

}  // namespace freshet
