#include "rollout/engine/engine_scheduler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <new>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "rollout/engine/request_check.h"

namespace freshet {
namespace {

// A group whose blocks were taken away gets them back once it can also generate this many tokens.
constexpr int64_t kTokensAfterPreemption = 64;
// Weight of one more response in the average length.
constexpr double kLengthWeight = 1.0 / 16;
// Draft tokens in a batch. More make a pass longer by what they save, and each takes a row of
// logits.
constexpr int64_t kMaxBatchDrafts = 256;

}  // namespace

EngineScheduler::EngineScheduler(const ModelConfig& config, const EngineLimits& limits,
                                 KvBlockPool& cache)
    : config_(config),
      limits_(limits),
      cache_(cache),
      prefixes_(cache, limits.prefix_cache),
      average_length_(static_cast<double>(limits.expected_new_tokens)) {}

int64_t EngineScheduler::ExpectedTokens(const SamplingParams& sampling) const {
  return std::min<int64_t>(
      sampling.max_new_tokens,
      std::max(static_cast<int64_t>(std::ceil(average_length_)), limits_.speculative_tokens));
}

int64_t EngineScheduler::Room() const {
  int64_t room = cache_.num_free();
  for (const std::list<RunningGroup>& groups : groups_) {
    for (const RunningGroup& group : groups) {
      if (group.preempted) continue;
      room -= BlocksWanted(group, limits_.speculative_tokens) - BlocksHeld(group);
    }
  }
  return room;
}

int64_t EngineScheduler::Admissible(int64_t prompt_tokens, int64_t num_samples,
                                    const SamplingParams& sampling, int64_t most) const {
  for (const std::list<RunningGroup>& groups : groups_) {
    if (std::ranges::any_of(groups, &RunningGroup::preempted)) return 0;
  }
  const int64_t by_blocks =
      Room() / KvBlocksOfGroup(prompt_tokens, num_samples, ExpectedTokens(sampling));
  int64_t by_samples = (limits_.max_sequences - running_) / num_samples;
  // A request larger than the whole engine may run alone.
  if (running_ == 0) by_samples = std::max<int64_t>(by_samples, 1);
  return std::clamp<int64_t>(std::min(by_blocks, by_samples), 0, most);
}

absl::Status EngineScheduler::Submit(GenerationRequest request) {
  FRESHET_RETURN_IF_ERROR(CheckRequest(request, config_));
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
                             limits_.max_sequences, " run, ", std::max<int64_t>(Room(), 0), " of ",
                             cache_.num_blocks(), " cache blocks are neither used nor reserved");
  }
  // Build it completely before adding it, because an allocation may throw.
  RunningGroup group;
  group.request = std::move(request);
  group.arrival = ++last_arrival_;
  group.expected = ExpectedTokens(group.request.sampling);
  for (size_t i = 0; i < group.request.sample_indices.size(); ++i) {
    RunningSample& sample = group.samples.emplace_back();
    sample.index = group.request.sample_indices[i];
    sample.number = static_cast<int64_t>(i);
    if (!group.request.partials.empty()) sample.response = std::move(group.request.partials[i]);
    StartSampling(group.request, sample);
  }
  group.request.partials.clear();
  if (limits_.speculative_tokens > 0) StartDrafting(group);
  groups_[static_cast<int>(group.request.lane)].push_back(std::move(group));
  running_ += num_samples;
  return absl::OkStatus();
}

// Decode tokens come first, so that running samples never wait for a long prompt. Prompts fill the
// rest. Drafts take what both leave.
EngineBatch EngineScheduler::Fill(Lane lane) {
  PreemptUntilAllFit();
  Resume(lane);
  EngineBatch batch;
  batch.room = limits_.max_batch_tokens;
  std::list<RunningGroup>& groups = groups_[static_cast<int>(lane)];
  batch.draft_room = batch.room;
  for (RunningGroup& group : groups) {
    if (group.preempted) continue;
    if (std::exchange(group.computing, true)) group.mixed = true;
    batch.draft_room -= TokensToFeed(group);
  }
  batch.draft_room = std::min(batch.draft_room, kMaxBatchDrafts);
  for (RunningGroup& group : groups) {
    if (!group.prompt_done()) continue;
    for (RunningSample& sample : group.samples) FillFromSample(group, sample, batch);
  }
  for (RunningGroup& group : groups) {
    if (!group.prompt_done() && !group.preempted) FillFromGroup(group, batch);
  }
  return batch;
}

void EngineScheduler::PreemptUntilAllFit() {
  while (Room() < 0) {
    RunningGroup* newest = nullptr;
    for (std::list<RunningGroup>& groups : groups_) {
      for (RunningGroup& group : groups) {
        if (group.preempted) continue;
        if (newest == nullptr || group.arrival > newest->arrival) newest = &group;
      }
    }
    FRESHET_CHECK(newest != nullptr);
    Unload(*newest, /*retain=*/true);
    newest->preempted = true;
    ++counters_.preemptions;
  }
}

void EngineScheduler::Resume(Lane lane) {
  for (RunningGroup& group : groups_[static_cast<int>(lane)]) {
    if (!group.preempted) continue;
    int64_t longest = 0;
    for (const RunningSample& sample : group.samples) {
      longest = std::max(longest, std::ssize(sample.response.response_ids));
    }
    group.expected = std::max(
        ExpectedTokens(group.request.sampling),
        std::min<int64_t>(group.request.sampling.max_new_tokens, longest + kTokensAfterPreemption));
    // The next ones wait for it.
    if (BlocksWanted(group, limits_.speculative_tokens) > Room()) return;
    group.preempted = false;
  }
}

void EngineScheduler::FillFromGroup(RunningGroup& group, EngineBatch& batch) {
  // Queries hold the table's address, so it must not be reallocated while a batch is built.
  group.blocks.reserve(static_cast<size_t>(KvBlocks(group.prompt_size())));
  if (group.blocks.empty()) {
    prefixes_.Reuse(group.request.lane, group.request.prompt_ids, 0, group.blocks);
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
  const std::vector<int32_t>& response = sample.response.response_ids;
  const int64_t size = std::ssize(response);
  const int64_t most = group.request.sampling.max_new_tokens;
  const size_t table = static_cast<size_t>(KvBlocks(group.prompt_size() + most));
  sample.blocks.reserve(table);  // same reason
  const auto add = [&](int64_t index, int32_t token) {
    const int64_t position = group.prompt_size() + index;
    // Blocks of a rejected draft already exist and are overwritten.
    if (position / kKvBlockTokens == std::ssize(sample.blocks)) {
      sample.blocks.push_back(AllocateBlock());
    }
    batch.Add(token, position, sample.blocks);
    if (index + 1 >= size) batch.wants.push_back({&group, &sample, batch.size() - 1});
  };
  sample.draft.clear();
  if (sample.fed == size) return;
  for (; sample.fed < size && batch.room > 0; ++sample.fed) {
    add(sample.fed, response[static_cast<size_t>(sample.fed)]);
  }
  if (sample.fed < size || group.lookup == nullptr) return;
  // The last token is not computed.
  const int64_t longest = std::min(
      {limits_.speculative_tokens, sample.allowance.tokens(), batch.draft_room, most - size - 1});
  sample.draft = group.lookup->Propose(sample.number, longest);
  for (int64_t i = 0; i < std::ssize(sample.draft); ++i) {
    add(size + i, sample.draft[static_cast<size_t>(i)]);
  }
  batch.draft_room -= std::ssize(sample.draft);
}

std::vector<GenerationOutput> EngineScheduler::Accept(Lane lane, const EngineBatch& batch,
                                                      const float* logits, PolicyVersion policy,
                                                      ThreadPool& pool) {
  for (RunningGroup& group : groups_[static_cast<int>(lane)]) group.computing = false;
  // Samples whose prompt is now in the cache get their own tables.
  for (const EngineBatch::Want& want : batch.wants) {
    if (want.sample != nullptr) continue;
    RunningGroup& group = *want.group;
    counters_.tokens_prefilled += group.prompt_size() - std::exchange(group.found, 0);
    if (!group.mixed) prefixes_.Retain(lane, group.request.prompt_ids, group.blocks);
    if (config_.scalar_head) continue;
    for (RunningSample& sample : group.samples) Fork(group, sample);
  }
  if (config_.scalar_head) {
    std::vector<GenerationOutput> finished = TakeScores(lane, batch, logits);
    RemoveFinished(lane);
    return finished;
  }
  std::vector<SampledToken> first = DrawFirst(batch, logits, config_.vocab_size, pool);
  auto next = first.begin();
  std::vector<GenerationOutput> finished;
  for (size_t i = 0; i < batch.wants.size(); ++i) {
    const EngineBatch::Want& want = batch.wants[i];
    const float* row = logits + static_cast<int64_t>(i) * config_.vocab_size;
    if (want.sample != nullptr) {
      i += want.sample->draft.size();
      TakeAlongDraft(lane, *want.group, *want.sample, std::move(*next++), row, policy, finished);
      continue;
    }
    for (RunningSample& sample : want.group->samples) {
      // Kept tokens are fed first.
      if (!sample.response.response_ids.empty()) continue;
      Take(lane, *want.group, sample, std::move(*next++), policy, finished);
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
      prefixes_.Reuse(group.request.lane, Tokens(group, sample.response.response_ids), shared,
                      sample.blocks);
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

std::vector<GenerationOutput> EngineScheduler::TakeScores(Lane lane, const EngineBatch& batch,
                                                          const float* scores) {
  std::vector<GenerationOutput> finished;
  finished.reserve(batch.wants.size());
  for (size_t i = 0; i < batch.wants.size(); ++i) {
    RunningGroup& group = *batch.wants[i].group;
    RunningSample& sample = group.samples.front();
    sample.response.finish = FinishReason::kStop;
    GenerationOutput& output = finished.emplace_back();
    output.request_id = group.request.id;
    output.lane = lane;
    if (!std::isfinite(scores[i])) {
      output.error = Internal("the model's score of this prompt is not finite");
      continue;
    }
    group.request.on_score(scores[i]);
    output.sample_index = sample.index;
    output.response = sample.response;
  }
  return finished;
}

void EngineScheduler::Take(Lane lane, RunningGroup& group, RunningSample& sample,
                           SampledToken drawn, PolicyVersion policy,
                           std::vector<GenerationOutput>& finished) {
  const GeneratedToken token = Append(group.request, sample, std::move(drawn), policy);
  ++(lane == Lane::kRollout ? counters_.tokens_generated : counters_.tokens_generated_evaluation);
  if (group.lookup != nullptr) group.lookup->Add(sample.number, token.token.id);
  if (group.request.on_token) group.request.on_token(token);
  if (token.finish == FinishReason::kNone) return;
  const auto length = static_cast<double>(sample.response.response_ids.size());
  average_length_ += kLengthWeight * (length - average_length_);
  finished.push_back({group.request.id, lane, sample.index, sample.response});
}

void EngineScheduler::TakeAlongDraft(Lane lane, RunningGroup& group, RunningSample& sample,
                                     SampledToken first, const float* logits, PolicyVersion policy,
                                     std::vector<GenerationOutput>& finished) {
  int64_t accepted = 0;
  Take(lane, group, sample, std::move(first), policy, finished);
  for (const int32_t token : sample.draft) {
    if (sample.response.response_ids.back() != token) break;
    ++accepted;
    ++sample.fed;
    if (sample.response.finish != FinishReason::kNone) break;
    Take(
        lane, group, sample,
        DrawNext(group.request, sample, logits + accepted * config_.vocab_size, config_.vocab_size),
        policy, finished);
  }
  const int64_t drafted = std::ssize(sample.draft);
  sample.allowance.Report(drafted, accepted);
  counters_.tokens_drafted += drafted;
  counters_.tokens_accepted += accepted;
  sample.draft.clear();
}

void EngineScheduler::RemoveFinished(Lane lane) {
  std::list<RunningGroup>& groups = groups_[static_cast<int>(lane)];
  for (RunningGroup& group : groups) {
    std::erase_if(group.samples, [&](RunningSample& sample) {
      if (sample.response.finish == FinishReason::kNone) return false;
      Unload(group, sample, /*retain=*/true);
      --running_;
      return true;
    });
    if (group.samples.empty()) Unload(group, /*retain=*/true);
  }
  std::erase_if(groups, [](const RunningGroup& group) { return group.samples.empty(); });
}

void EngineScheduler::Unload(const RunningGroup& group, RunningSample& sample, bool retain) {
  if (retain && sample.forked && group.prompt_done() && !group.computing && !group.mixed) {
    try {
      std::vector<int32_t> tokens = Tokens(group, sample.response.response_ids);
      tokens.resize(static_cast<size_t>(group.prompt_size() + sample.fed));
      prefixes_.Retain(group.request.lane, tokens, sample.blocks);
    } catch (const std::bad_alloc&) {  // the blocks are released all the same
    }
  }
  prefixes_.Release(sample.blocks);
  sample.blocks.clear();
  sample.forked = false;
  sample.fed = 0;
}

void EngineScheduler::Unload(RunningGroup& group, bool retain) {
  for (RunningSample& sample : group.samples) Unload(group, sample, retain);
  prefixes_.Release(group.blocks);
  group.blocks.clear();
  group.fed = group.found = 0;
  group.mixed = group.computing = false;
}

std::vector<GenerationOutput> EngineScheduler::Cancel(int64_t request_id) {
  std::vector<GenerationOutput> partials;
  for (int lane = 0; lane < kNumLanes; ++lane) {
    std::erase_if(groups_[lane], [&](RunningGroup& group) {
      if (group.request.id != request_id) return false;
      Unload(group, /*retain=*/true);
      running_ -= std::ssize(group.samples);
      for (RunningSample& sample : group.samples) {
        partials.push_back(
            {request_id, static_cast<Lane>(lane), sample.index, std::move(sample.response)});
      }
      return true;
    });
  }
  return partials;
}

void EngineScheduler::WeightsChanged(Lane lane, bool recompute) {
  prefixes_.Clear(lane);
  for (RunningGroup& group : groups_[static_cast<int>(lane)]) {
    // Blocks may be shared with other groups, which compute them again too.
    if (recompute) {
      Unload(group, /*retain=*/false);
    } else {
      group.mixed = group.fed > 0;
    }
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
