#include "rollout/engine/engine_scheduler.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/random.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

KvCacheShape CacheShape(const ModelConfig& config) {
  return {config.num_hidden_layers, config.num_key_value_heads, config.head_dim};
}

// Checks kept tokens of an earlier attempt: equal column lengths, valid tokens, and at least one
// token left to generate.
absl::Status CheckPartial(const GenerationRequest& request, const Response& partial,
                          int64_t vocab_size) {
  const size_t size = partial.response_ids.size();
  const size_t truncated = partial.sampling_logprobs.size();
  if (partial.behavior_logprobs.size() != size || partial.loss_mask.size() != size ||
      (truncated != size && truncated != 0)) {
    return InvalidArgument("request ", request.id, ": columns of a partial response of ", size,
                           " tokens differ in length");
  }
  if (partial.finish != FinishReason::kNone) {
    return InvalidArgument("request ", request.id, ": a partial response is finished");
  }
  if (size >= static_cast<size_t>(request.sampling.max_new_tokens)) {
    return InvalidArgument("request ", request.id, ": a partial response of ", size,
                           " tokens leaves none of max_new_tokens ",
                           request.sampling.max_new_tokens);
  }
  for (const int32_t id : partial.response_ids) {
    if (id < 0 || id >= vocab_size) {
      return InvalidArgument("request ", request.id, ": token ", id,
                             " of a partial response is outside of the vocabulary of ", vocab_size);
    }
  }
  return absl::OkStatus();
}

// Prepares what later tokens of `sample` depend on, beside the cache.
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

// The prompt and a response.
std::vector<int32_t> Tokens(const RunningGroup& group, const std::vector<int32_t>& response) {
  std::vector<int32_t> tokens = group.request.prompt_ids;
  tokens.insert(tokens.end(), response.begin(), response.end());
  return tokens;
}

// Checks that the ids of the sampling parameters are in the vocabulary.
absl::Status CheckSamplingIds(const GenerationRequest& request, int64_t vocab_size) {
  const auto check = [&](const char* name, int32_t id) {
    if (id >= 0 && id < vocab_size) return absl::OkStatus();
    return InvalidArgument("request ", request.id, ": ", name, " ", id,
                           " is outside of the vocabulary of ", vocab_size);
  };
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    FRESHET_RETURN_IF_ERROR(check("logit_bias of token", id));
  }
  if (request.sampling.min_new_tokens > 0) {
    for (const int32_t id : request.sampling.stop_ids) {
      FRESHET_RETURN_IF_ERROR(check("stop token", id));
    }
  }
  return absl::OkStatus();
}

}  // namespace

EngineScheduler::EngineScheduler(const ModelConfig& config, const EngineLimits& limits)
    : config_(config),
      limits_(limits),
      cache_(CacheShape(config), limits.cache_blocks),
      prefixes_(limits.cache_blocks) {}

int64_t EngineScheduler::Admissible(int64_t prompt_tokens, int64_t num_samples,
                                    const SamplingParams& sampling, int64_t most) const {
  const int64_t blocks = KvBlocksOfGroup(prompt_tokens, num_samples, sampling.max_new_tokens);
  const int64_t by_blocks = (cache_.num_blocks() - reserved_blocks_) / blocks;
  int64_t by_samples = (limits_.max_sequences - running_) / num_samples;
  // A request larger than the whole engine may run alone.
  if (running_ == 0) by_samples = std::max<int64_t>(by_samples, 1);
  return std::clamp<int64_t>(std::min(by_blocks, by_samples), 0, most);
}

absl::Status EngineScheduler::CheckRequest(const GenerationRequest& request) const {
  FRESHET_RETURN_IF_ERROR(request.sampling.Validate());
  FRESHET_RETURN_IF_ERROR(CheckSamplingIds(request, config_.vocab_size));
  const auto prompt_tokens = static_cast<int64_t>(request.prompt_ids.size());
  if (prompt_tokens == 0) return InvalidArgument("request ", request.id, ": empty prompt");
  if (prompt_tokens + request.sampling.max_new_tokens > config_.max_position_embeddings) {
    return InvalidArgument("request ", request.id, ": ", prompt_tokens, " prompt tokens and ",
                           request.sampling.max_new_tokens,
                           " new ones do not fit into the context of ",
                           config_.max_position_embeddings);
  }
  for (const int32_t id : request.prompt_ids) {
    if (id < 0 || id >= config_.vocab_size) {
      return InvalidArgument("request ", request.id, ": token ", id,
                             " is outside of the vocabulary of ", config_.vocab_size);
    }
  }
  if (request.sample_indices.empty()) {
    return InvalidArgument("request ", request.id, ": no samples");
  }
  if (!request.partials.empty() && request.partials.size() != request.sample_indices.size()) {
    return InvalidArgument("request ", request.id, ": ", request.partials.size(),
                           " partial responses for ", request.sample_indices.size(), " samples");
  }
  for (const Response& partial : request.partials) {
    FRESHET_RETURN_IF_ERROR(CheckPartial(request, partial, config_.vocab_size));
  }
  return absl::OkStatus();
}

absl::Status EngineScheduler::Submit(GenerationRequest request) {
  FRESHET_RETURN_IF_ERROR(CheckRequest(request));
  const auto prompt_tokens = static_cast<int64_t>(request.prompt_ids.size());
  const auto num_samples = static_cast<int64_t>(request.sample_indices.size());
  const int64_t blocks =
      KvBlocksOfGroup(prompt_tokens, num_samples, request.sampling.max_new_tokens);
  if (blocks > cache_.num_blocks()) {
    return InvalidArgument("request ", request.id, ": needs ", blocks,
                           " cache blocks, the engine has ", cache_.num_blocks(),
                           "; use fewer samples, shorter responses or a larger cache");
  }
  if (Admissible(prompt_tokens, num_samples, request.sampling, 1) == 0) {
    return ResourceExhausted("no room for ", num_samples, " samples: ", running_, " of ",
                             limits_.max_sequences, " run, ", reserved_blocks_, " of ",
                             cache_.num_blocks(), " cache blocks are reserved");
  }
  // Build it completely before adding it, because an allocation may throw.
  RunningGroup group;
  group.request = std::move(request);
  group.reserved = blocks;
  for (size_t i = 0; i < group.request.sample_indices.size(); ++i) {
    RunningSample& sample = group.samples.emplace_back();
    sample.index = group.request.sample_indices[i];
    if (!group.request.partials.empty()) sample.response = std::move(group.request.partials[i]);
    StartSampling(group.request, sample);
  }
  group.request.partials.clear();
  groups_[static_cast<int>(group.request.lane)].push_back(std::move(group));
  reserved_blocks_ += blocks;
  running_ += num_samples;
  return absl::OkStatus();
}

// Decode tokens come first, so that running samples never wait for a long prompt. Prompts fill the
// rest.
EngineBatch EngineScheduler::Fill(Lane lane) {
  EngineBatch batch;
  batch.room = limits_.max_batch_tokens;
  std::list<RunningGroup>& groups = groups_[static_cast<int>(lane)];
  for (RunningGroup& group : groups) {
    if (std::exchange(group.computing, true)) group.mixed = true;
  }
  for (RunningGroup& group : groups) {
    if (!group.prompt_done()) continue;
    for (RunningSample& sample : group.samples) FillFromSample(group, sample, batch);
  }
  for (RunningGroup& group : groups) {
    if (!group.prompt_done()) FillFromGroup(group, batch);
  }
  return batch;
}

void EngineScheduler::FillFromGroup(RunningGroup& group, EngineBatch& batch) {
  // Queries hold the table's address, so it must not be reallocated while a batch is built.
  group.blocks.reserve(static_cast<size_t>(CeilDiv(group.prompt_size(), kKvBlockTokens)));
  if (group.blocks.empty()) {
    Reuse(group.request.lane, group.request.prompt_ids, 0, group.blocks);
    group.found = group.fed = static_cast<int64_t>(group.blocks.size()) * kKvBlockTokens;
    counters_.tokens_reused += group.found;
  }
  while (!group.prompt_done() && batch.room > 0) {
    const int64_t position = group.fed;
    // When recomputing, the blocks already exist and are overwritten.
    if (position / kKvBlockTokens == static_cast<int64_t>(group.blocks.size())) {
      group.blocks.push_back(AllocateBlock());
    }
    batch.Add(group.request.prompt_ids[static_cast<size_t>(position)], position, group.blocks);
    ++group.fed;
    if (group.prompt_done()) batch.wants.push_back({&group, nullptr, batch.size() - 1});
  }
}

void EngineScheduler::FillFromSample(RunningGroup& group, RunningSample& sample,
                                     EngineBatch& batch) {
  const auto size = static_cast<int64_t>(sample.response.response_ids.size());
  const int64_t prompt = group.prompt_size();
  const size_t table =
      static_cast<size_t>(CeilDiv(prompt + group.request.sampling.max_new_tokens, kKvBlockTokens));
  sample.blocks.reserve(table);  // same reason
  while (sample.fed < size && batch.room > 0) {
    const int64_t position = prompt + sample.fed;
    if (position / kKvBlockTokens == static_cast<int64_t>(sample.blocks.size())) {
      sample.blocks.push_back(AllocateBlock());
    }
    batch.Add(sample.response.response_ids[static_cast<size_t>(sample.fed)], position,
              sample.blocks);
    ++sample.fed;
    if (sample.fed == size) batch.wants.push_back({&group, &sample, batch.size() - 1});
  }
}

std::vector<GenerationOutput> EngineScheduler::Accept(Lane lane, const EngineBatch& batch,
                                                      const float* logits, PolicyVersion policy) {
  for (RunningGroup& group : groups_[static_cast<int>(lane)]) group.computing = false;
  // Samples whose prompt is now in the cache get their own tables.
  for (const EngineBatch::Want& want : batch.wants) {
    if (want.sample != nullptr) continue;
    RunningGroup& group = *want.group;
    counters_.tokens_prefilled += group.prompt_size() - std::exchange(group.found, 0);
    if (!group.mixed) Retain(lane, group.request.prompt_ids, group.blocks);
    for (RunningSample& sample : group.samples) Fork(group, sample);
  }
  std::vector<GenerationOutput> finished;
  for (size_t i = 0; i < batch.wants.size(); ++i) {
    const EngineBatch::Want& want = batch.wants[i];
    const float* row = logits + static_cast<int64_t>(i) * config_.vocab_size;
    if (want.sample != nullptr) {
      Draw(lane, *want.group, *want.sample, row, policy, finished);
      continue;
    }
    for (RunningSample& sample : want.group->samples) {
      // Kept tokens are fed first.
      if (!sample.response.response_ids.empty()) continue;
      Draw(lane, *want.group, sample, row, policy, finished);
    }
  }
  RemoveFinished(lane);
  return finished;
}

void EngineScheduler::Fork(RunningGroup& group, RunningSample& sample) {
  const int64_t shared = group.prompt_size() / kKvBlockTokens;
  const int64_t tail = group.prompt_size() % kKvBlockTokens;
  if (!sample.forked) {
    for (int64_t b = 0; b < shared; ++b) {
      sample.blocks.push_back(group.blocks[static_cast<size_t>(b)]);
      cache_.AddReference(sample.blocks.back());
    }
    sample.forked = true;
    if (!sample.response.response_ids.empty() && !group.mixed) {
      Reuse(group.request.lane, Tokens(group, sample.response.response_ids), shared, sample.blocks);
    }
    if (static_cast<int64_t>(sample.blocks.size()) > shared) {
      sample.fed =
          static_cast<int64_t>(sample.blocks.size()) * kKvBlockTokens - group.prompt_size();
      counters_.tokens_reused += sample.fed;
      return;
    }
    if (tail > 0) sample.blocks.push_back(AllocateBlock());
  }
  if (tail > 0) {
    cache_.CopyPrefix(group.blocks[static_cast<size_t>(shared)],
                      sample.blocks[static_cast<size_t>(shared)], tail);
  }
}

void EngineScheduler::Draw(Lane lane, RunningGroup& group, RunningSample& sample,
                           const float* logits, PolicyVersion policy,
                           std::vector<GenerationOutput>& finished) {
  Response& response = sample.response;
  const SamplingParams& sampling = group.request.sampling;
  const uint64_t bits =
      RandomBits(group.request.seed, static_cast<uint64_t>(group.request.ordinal),
                 static_cast<uint64_t>(sample.index), response.response_ids.size());
  const SampledToken token =
      SampleToken(logits, config_.vocab_size, sampling, sample.counts, ToUniform(bits));
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
  ++(lane == Lane::kRollout ? counters_.tokens_generated : counters_.tokens_generated_evaluation);
  const auto& stops = sampling.stop_ids;
  const bool stop_string = sample.stop_matcher != nullptr && sample.stop_matcher->Add(token.id);
  if (stop_string || std::find(stops.begin(), stops.end(), token.id) != stops.end()) {
    response.finish = FinishReason::kStop;
  } else if (size >= sampling.max_new_tokens) {
    response.finish = FinishReason::kLength;
  }
  if (group.request.on_token) {
    group.request.on_token({sample.index, token, policy, response.finish});
  }
  if (response.finish != FinishReason::kNone) {
    finished.push_back({group.request.id, lane, sample.index, response});
  }
}

void EngineScheduler::RemoveFinished(Lane lane) {
  std::list<RunningGroup>& groups = groups_[static_cast<int>(lane)];
  for (RunningGroup& group : groups) {
    std::erase_if(group.samples, [&](RunningSample& sample) {
      if (sample.response.finish == FinishReason::kNone) return false;
      Release(group, sample);
      return true;
    });
    if (group.samples.empty()) Release(group);
  }
  std::erase_if(groups, [](const RunningGroup& group) { return group.samples.empty(); });
}

// The last blocks are then the first to be taken for other tokens.
void EngineScheduler::ReleaseLastFirst(const std::vector<int32_t>& blocks) {
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) cache_.Release(*block);
}

int32_t EngineScheduler::AllocateBlock() {
  const int32_t block = cache_.Allocate();
  prefixes_.Erase(block);
  return block;
}

void EngineScheduler::Reuse(Lane lane, const std::vector<int32_t>& tokens, int64_t skip,
                            std::vector<int32_t>& table) {
  if (!limits_.prefix_cache) return;
  const std::vector<int32_t> before_last(tokens.begin(), tokens.end() - 1);
  const std::vector<int32_t> found = prefixes_.Find(static_cast<int>(lane), before_last);
  for (size_t b = static_cast<size_t>(skip); b < found.size(); ++b) {
    cache_.AddReference(found[b]);
    table.push_back(found[b]);
  }
}

void EngineScheduler::Retain(Lane lane, const std::vector<int32_t>& tokens,
                             const std::vector<int32_t>& table) {
  if (!limits_.prefix_cache) return;
  for (const int32_t block : prefixes_.Insert(static_cast<int>(lane), tokens, table)) {
    cache_.SetRetained(block, true);
  }
}

void EngineScheduler::Release(const RunningGroup& group, RunningSample& sample) {
  if (sample.forked && group.prompt_done() && !group.computing && !group.mixed) {
    try {
      std::vector<int32_t> tokens = Tokens(group, sample.response.response_ids);
      tokens.resize(static_cast<size_t>(group.prompt_size() + sample.fed));
      Retain(group.request.lane, tokens, sample.blocks);
    } catch (const std::bad_alloc&) {  // the blocks are released all the same
    }
  }
  ReleaseLastFirst(sample.blocks);
  --running_;
}

void EngineScheduler::Release(RunningGroup& group) {
  ReleaseLastFirst(group.blocks);
  group.blocks.clear();
  reserved_blocks_ -= std::exchange(group.reserved, 0);
}

std::vector<GenerationOutput> EngineScheduler::Cancel(int64_t request_id) {
  std::vector<GenerationOutput> partials;
  for (int lane = 0; lane < kNumLanes; ++lane) {
    std::erase_if(groups_[lane], [&](RunningGroup& group) {
      if (group.request.id != request_id) return false;
      for (RunningSample& sample : group.samples) {
        Release(group, sample);
        partials.push_back(
            {request_id, static_cast<Lane>(lane), sample.index, std::move(sample.response)});
      }
      Release(group);
      return true;
    });
  }
  return partials;
}

void EngineScheduler::WeightsChanged(Lane lane, bool recompute) {
  for (const int32_t block : prefixes_.Clear(static_cast<int>(lane))) {
    cache_.SetRetained(block, false);
  }
  for (RunningGroup& group : groups_[static_cast<int>(lane)]) {
    group.mixed = !recompute && group.fed > 0;
    if (!recompute) continue;
    // Blocks may be shared with other groups, which compute them again too.
    for (RunningSample& sample : group.samples) {
      ReleaseLastFirst(sample.blocks);
      sample.blocks.clear();
      sample.forked = false;
      sample.fed = 0;
    }
    ReleaseLastFirst(group.blocks);
    group.blocks.clear();
    group.fed = group.found = 0;
  }
}

EngineStats EngineScheduler::stats() const {
  EngineStats stats = counters_;
  stats.running_sequences = running_;
  stats.capacity_sequences = limits_.max_sequences;
  stats.cache_blocks = cache_.num_blocks();
  stats.cache_blocks_free = cache_.num_free();
  return stats;
}

}  // namespace freshet
