#include "rollout/native_engine.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include "model/transformer.h"
#include "rollout/paged_attention.h"
#include "services/base/log.h"
#include "services/base/random.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

// Rows of a matrix product below this number change bits in fp32; padded up to it they do not.
constexpr int64_t kMinRows = 16;
constexpr int64_t kDefaultCacheBytes = int64_t{4} << 30;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t PadRows(int64_t rows) { return CeilDiv(rows, kMinRows) * kMinRows; }

KvCacheShape CacheShape(const ModelConfig& config) {
  return {config.num_hidden_layers, config.num_key_value_heads, config.head_dim};
}

int64_t CacheBlocks(const ModelConfig& config, const NativeEngineOptions& options) {
  if (options.cache_blocks > 0) return options.cache_blocks;
  const int64_t full = CeilDiv(config.max_position_embeddings, kKvBlockTokens) + 1;
  const int64_t block_bytes = config.num_hidden_layers * config.num_key_value_heads * 2 *
                              config.head_dim * kKvBlockTokens *
                              static_cast<int64_t>(sizeof(float));
  const int64_t affordable = std::max<int64_t>(full * 2, kDefaultCacheBytes / block_bytes);
  return std::min(affordable, (options.max_sequences + 1) * full * 2);
}

// Kept tokens of an earlier attempt: whole columns, known tokens, and at least one left to draw.
absl::Status CheckPartial(const GenerationRequest& request, const Response& partial,
                          int64_t vocab_size) {
  const size_t size = partial.response_ids.size();
  if (partial.behavior_logprobs.size() != size || partial.loss_mask.size() != size) {
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

}  // namespace

// One sample being generated. `fed` response tokens are in the cache; the next ones are fed until
// all are, and then a token is drawn.
struct NativeEngine::Sequence {
  int32_t index = 0;
  Response response;
  int64_t fed = 0;
  bool forked = false;  // owns a table that starts with the prompt
  std::vector<int32_t> blocks;
};

// One request: its prompt's part of the cache, and its samples.
struct NativeEngine::Group {
  GenerationRequest request;
  int64_t fed = 0;  // prompt tokens in the cache
  std::vector<int32_t> blocks;
  std::list<Sequence> sequences;
  int64_t reserved = 0;

  int64_t prompt_size() const { return static_cast<int64_t>(request.prompt_ids.size()); }
  bool prompt_done() const { return fed == prompt_size(); }
};

struct NativeEngine::LaneState {
  Lane lane = Lane::kRollout;
  std::optional<WeightSnapshot> snapshot;  // keeps the bytes alive that `weights` views
  TransformerWeights weights;
  std::list<Group> groups;
};

// One forward pass: query tokens and, for those whose logits are wanted, what they are for.
struct NativeEngine::Batch {
  struct Want {
    Group* group;
    Sequence* sequence;  // null: all samples of the group draw from this row
    int64_t row;
  };
  std::vector<int64_t> token_ids;
  std::vector<int64_t> positions;
  std::vector<std::pair<int32_t, int64_t>> slots;  // cache block and slot of each token
  std::vector<PagedQuery> queries;
  std::vector<Want> wants;
  int64_t room = 0;

  int64_t size() const { return static_cast<int64_t>(token_ids.size()); }
  void Add(int64_t token, int64_t position, const std::vector<int32_t>& blocks) {
    token_ids.push_back(token);
    positions.push_back(position);
    slots.emplace_back(blocks[static_cast<size_t>(position / kKvBlockTokens)],
                       position % kKvBlockTokens);
    queries.push_back({blocks.data(), position + 1});
    --room;
  }
};

struct NativeEngine::Model {
  ParameterLayout layout;
  Transformer transformer;
  at::Tensor logits;  // of the batch's wanted rows, fp32 [wants, V]
};

absl::StatusOr<std::unique_ptr<NativeEngine>> NativeEngine::Create(
    const ModelConfig& config, const NativeEngineOptions& options) {
  if (options.max_sequences < 1) {
    return InvalidArgument("max_sequences ", options.max_sequences, " is below 1");
  }
  if (options.max_batch_tokens < 1) {
    return InvalidArgument("max_batch_tokens ", options.max_batch_tokens, " is below 1");
  }
  if (options.cache_blocks < 0) {
    return InvalidArgument("cache_blocks ", options.cache_blocks, " is below 0");
  }
  FRESHET_RETURN_IF_ERROR(config.Validate());
  return std::unique_ptr<NativeEngine>(new NativeEngine(config, options));
}

NativeEngine::NativeEngine(const ModelConfig& config, const NativeEngineOptions& options)
    : config_(config),
      options_(options),
      cache_(CacheShape(config), CacheBlocks(config, options)),
      model_(new Model{MakeParameterLayout(config), Transformer(config), {}}) {
  for (int i = 0; i < kNumLanes; ++i) {
    lanes_[i] = std::make_unique<LaneState>();
    lanes_[i]->lane = static_cast<Lane>(i);
  }
}

NativeEngine::~NativeEngine() = default;

int64_t NativeEngine::BlocksNeeded(int64_t prompt_tokens, int64_t num_samples,
                                   int64_t max_new_tokens) const {
  // A sample needs its own copy of the prompt's last, partly filled block.
  const int64_t shared = prompt_tokens / kKvBlockTokens;
  const int64_t whole = CeilDiv(prompt_tokens + max_new_tokens, kKvBlockTokens);
  return CeilDiv(prompt_tokens, kKvBlockTokens) + num_samples * (whole - shared);
}

int64_t NativeEngine::Admissible(int64_t prompt_tokens, int64_t num_samples,
                                 const SamplingParams& sampling, int64_t most) const {
  const int64_t blocks = BlocksNeeded(prompt_tokens, num_samples, sampling.max_new_tokens);
  const int64_t by_blocks = (cache_.num_blocks() - reserved_blocks_) / blocks;
  int64_t by_sequences = (options_.max_sequences - running_) / num_samples;
  // A request larger than the whole engine may run alone in it.
  if (running_ == 0) by_sequences = std::max<int64_t>(by_sequences, 1);
  return std::clamp<int64_t>(std::min(by_blocks, by_sequences), 0, most);
}

absl::Status NativeEngine::CheckRequest(const GenerationRequest& request) const {
  FRESHET_RETURN_IF_ERROR(request.sampling.Validate());
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
  if (request.sample_indices.empty())
    return InvalidArgument("request ", request.id, ": no samples");
  if (!request.partials.empty() && request.partials.size() != request.sample_indices.size()) {
    return InvalidArgument("request ", request.id, ": ", request.partials.size(),
                           " partial responses for ", request.sample_indices.size(), " samples");
  }
  for (const Response& partial : request.partials) {
    FRESHET_RETURN_IF_ERROR(CheckPartial(request, partial, config_.vocab_size));
  }
  return absl::OkStatus();
}

absl::Status NativeEngine::Submit(GenerationRequest request) {
  FRESHET_RETURN_IF_ERROR(CheckRequest(request));
  LaneState& lane = *lanes_[static_cast<int>(request.lane)];
  if (!lane.snapshot.has_value()) return FailedPrecondition("the engine has no weights yet");
  const auto prompt_tokens = static_cast<int64_t>(request.prompt_ids.size());
  const auto num_samples = static_cast<int64_t>(request.sample_indices.size());
  const int64_t blocks = BlocksNeeded(prompt_tokens, num_samples, request.sampling.max_new_tokens);
  if (blocks > cache_.num_blocks()) {
    return InvalidArgument("request ", request.id, ": needs ", blocks,
                           " cache blocks, the engine has ", cache_.num_blocks(),
                           "; use fewer samples, shorter responses or a larger cache");
  }
  if (Admissible(prompt_tokens, num_samples, request.sampling, 1) == 0) {
    return ResourceExhausted("no room for ", num_samples, " samples: ", running_, " of ",
                             options_.max_sequences, " run, ", reserved_blocks_, " of ",
                             cache_.num_blocks(), " cache blocks are reserved");
  }
  Group& group = lane.groups.emplace_back();
  group.request = std::move(request);
  group.reserved = BlocksNeeded(prompt_tokens, num_samples, group.request.sampling.max_new_tokens);
  reserved_blocks_ += group.reserved;
  running_ += num_samples;
  for (size_t i = 0; i < group.request.sample_indices.size(); ++i) {
    Sequence& sequence = group.sequences.emplace_back();
    sequence.index = group.request.sample_indices[i];
    if (!group.request.partials.empty()) sequence.response = std::move(group.request.partials[i]);
  }
  group.request.partials.clear();
  return absl::OkStatus();
}

bool NativeEngine::Idle() const {
  const bool rollout = !paused_ && !lanes_[0]->groups.empty();
  return !rollout && lanes_[1]->groups.empty();
}

absl::StatusOr<std::vector<GenerationOutput>> NativeEngine::Poll() {
  std::vector<GenerationOutput> finished;
  try {
    const c10::InferenceMode inference;
    for (const auto& lane : lanes_) {
      if (lane->groups.empty() || (paused_ && lane->lane == Lane::kRollout)) continue;
      Batch batch;
      batch.room = options_.max_batch_tokens;
      FillBatch(*lane, batch);
      if (batch.size() == 0) continue;
      RunBatch(*lane, batch);
      FinishPrompts(batch);
      SampleBatch(*lane, batch, finished);
    }
  } catch (const std::exception& error) {
    return Internal("the engine failed: ", std::string(error.what()).substr(0, 300));
  }
  return finished;
}

// Decode tokens first, so that running samples never wait for a long prompt; prompts fill the rest.
void NativeEngine::FillBatch(LaneState& lane, Batch& batch) {
  for (Group& group : lane.groups) {
    if (!group.prompt_done()) continue;
    for (Sequence& sequence : group.sequences) FillFromSequence(group, sequence, batch);
  }
  for (Group& group : lane.groups) {
    if (!group.prompt_done()) FillFromGroup(group, batch);
  }
}

void NativeEngine::FillFromGroup(Group& group, Batch& batch) {
  // Queries hold the table's address: it must not move while a batch is built.
  group.blocks.reserve(static_cast<size_t>(CeilDiv(group.prompt_size(), kKvBlockTokens)));
  while (!group.prompt_done() && batch.room > 0) {
    const int64_t position = group.fed;
    // At a recomputation the blocks are there already and are written over.
    if (position / kKvBlockTokens == static_cast<int64_t>(group.blocks.size())) {
      group.blocks.push_back(cache_.Allocate());
    }
    batch.Add(group.request.prompt_ids[static_cast<size_t>(position)], position, group.blocks);
    ++group.fed;
    if (group.prompt_done()) batch.wants.push_back({&group, nullptr, batch.size() - 1});
  }
}

void NativeEngine::FillFromSequence(Group& group, Sequence& sequence, Batch& batch) {
  const auto size = static_cast<int64_t>(sequence.response.response_ids.size());
  const int64_t prompt = group.prompt_size();
  const size_t table =
      static_cast<size_t>(CeilDiv(prompt + group.request.sampling.max_new_tokens, kKvBlockTokens));
  sequence.blocks.reserve(table);  // likewise
  while (sequence.fed < size && batch.room > 0) {
    const int64_t position = prompt + sequence.fed;
    if (position / kKvBlockTokens == static_cast<int64_t>(sequence.blocks.size())) {
      sequence.blocks.push_back(cache_.Allocate());
    }
    batch.Add(sequence.response.response_ids[static_cast<size_t>(sequence.fed)], position,
              sequence.blocks);
    ++sequence.fed;
    if (sequence.fed == size) batch.wants.push_back({&group, &sequence, batch.size() - 1});
  }
}

void NativeEngine::RunBatch(LaneState& lane, Batch& batch) {
  const int64_t tokens = batch.size();
  const int64_t rows = PadRows(tokens);
  at::Tensor ids = at::zeros({rows}, at::kLong);
  at::Tensor positions = at::zeros({rows}, at::kLong);
  std::copy(batch.token_ids.begin(), batch.token_ids.end(), ids.mutable_data_ptr<int64_t>());
  std::copy(batch.positions.begin(), batch.positions.end(), positions.mutable_data_ptr<int64_t>());
  const int64_t heads = config_.num_attention_heads;
  const int64_t dim = config_.head_dim;
  const auto attention = [&](int64_t layer, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v) {
    const float* key = k.const_data_ptr<float>();
    const float* value = v.const_data_ptr<float>();
    for (int64_t i = 0; i < tokens; ++i) {
      const auto& [block, slot] = batch.slots[static_cast<size_t>(i)];
      cache_.Write(layer, block, slot, key + i * k.stride(0), value + i * v.stride(0));
    }
    at::Tensor out = at::zeros({rows, heads * dim}, at::kFloat);
    PagedAttention(cache_, layer, batch.queries, heads, q.const_data_ptr<float>(), q.stride(0),
                   out.mutable_data_ptr<float>());
    return out;
  };
  const at::Tensor hidden = model_->transformer.Forward(lane.weights, ids, positions, attention);

  // Logits of the wanted rows, padded likewise.
  const auto wanted = static_cast<int64_t>(batch.wants.size());
  if (wanted == 0) return;
  at::Tensor index = at::zeros({PadRows(wanted)}, at::kLong);
  for (int64_t i = 0; i < wanted; ++i) {
    index.mutable_data_ptr<int64_t>()[i] = batch.wants[static_cast<size_t>(i)].row;
  }
  model_->logits = Transformer::Logits(lane.weights, hidden.index_select(0, index)).contiguous();
}

// Samples of a prompt that is now in the cache get their own tables.
void NativeEngine::FinishPrompts(Batch& batch) {
  for (const Batch::Want& want : batch.wants) {
    if (want.sequence != nullptr) continue;
    stats_.tokens_prefilled += want.group->prompt_size();
    for (Sequence& sequence : want.group->sequences) ForkSequence(*want.group, sequence);
  }
}

void NativeEngine::ForkSequence(Group& group, Sequence& sequence) {
  const int64_t shared = group.prompt_size() / kKvBlockTokens;
  const int64_t tail = group.prompt_size() % kKvBlockTokens;
  if (!sequence.forked) {
    for (int64_t b = 0; b < shared; ++b) {
      sequence.blocks.push_back(group.blocks[static_cast<size_t>(b)]);
      cache_.AddReference(sequence.blocks.back());
    }
    if (tail > 0) sequence.blocks.push_back(cache_.Allocate());
    sequence.forked = true;
  }
  if (tail > 0) {
    cache_.CopyPrefix(group.blocks[static_cast<size_t>(shared)],
                      sequence.blocks[static_cast<size_t>(shared)], tail);
  }
}

void NativeEngine::SampleBatch(LaneState& lane, Batch& batch,
                               std::vector<GenerationOutput>& finished) {
  const float* logits = batch.wants.empty() ? nullptr : model_->logits.const_data_ptr<float>();
  for (size_t i = 0; i < batch.wants.size(); ++i) {
    const Batch::Want& want = batch.wants[i];
    const float* row = logits + static_cast<int64_t>(i) * config_.vocab_size;
    Group& group = *want.group;
    const auto draw = [&](Sequence& sequence) {
      const uint64_t bits =
          RandomBits(group.request.seed, static_cast<uint64_t>(group.request.ordinal),
                     static_cast<uint64_t>(sequence.index), sequence.response.response_ids.size());
      AcceptToken(lane, group, sequence,
                  SampleToken(row, config_.vocab_size, group.request.sampling, ToUniform(bits)),
                  finished);
    };
    if (want.sequence != nullptr) {
      draw(*want.sequence);
      continue;
    }
    for (Sequence& sequence : group.sequences) {
      // Samples with kept tokens feed those first.
      if (sequence.response.response_ids.empty()) draw(sequence);
    }
  }
  for (Group& group : lane.groups) {
    std::erase_if(group.sequences, [&](Sequence& sequence) {
      if (sequence.response.finish == FinishReason::kNone) return false;
      for (const int32_t block : sequence.blocks) cache_.Release(block);
      --running_;
      return true;
    });
    if (group.sequences.empty()) ReleaseGroup(group);
  }
  std::erase_if(lane.groups, [](const Group& group) { return group.sequences.empty(); });
}

void NativeEngine::AcceptToken(LaneState& lane, Group& group, Sequence& sequence,
                               const SampledToken& token, std::vector<GenerationOutput>& finished) {
  Response& response = sequence.response;
  response.response_ids.push_back(token.id);
  response.behavior_logprobs.push_back(token.logprob);
  response.loss_mask.push_back(1);
  const auto size = static_cast<int32_t>(response.response_ids.size());
  const PolicyVersion policy = lane.snapshot->manifest.policy;
  if (response.spans.empty() || response.spans.back().policy != policy) {
    response.spans.push_back({policy, size - 1, size});
  } else {
    response.spans.back().end = size;
  }
  ++(lane.lane == Lane::kRollout ? stats_.tokens_generated : stats_.tokens_generated_evaluation);
  const SamplingParams& sampling = group.request.sampling;
  const auto& stops = sampling.stop_ids;
  if (std::find(stops.begin(), stops.end(), token.id) != stops.end()) {
    response.finish = FinishReason::kStop;
  } else if (size >= sampling.max_new_tokens) {
    response.finish = FinishReason::kLength;
  }
  if (response.finish != FinishReason::kNone) {
    finished.push_back({group.request.id, lane.lane, sequence.index, response});
  }
}

void NativeEngine::ReleaseGroup(Group& group) {
  for (const int32_t block : group.blocks) cache_.Release(block);
  group.blocks.clear();
  reserved_blocks_ -= std::exchange(group.reserved, 0);
}

std::vector<GenerationOutput> NativeEngine::Cancel(int64_t request_id) {
  std::vector<GenerationOutput> partials;
  for (const auto& lane : lanes_) {
    std::erase_if(lane->groups, [&](Group& group) {
      if (group.request.id != request_id) return false;
      for (Sequence& sequence : group.sequences) {
        for (const int32_t block : sequence.blocks) cache_.Release(block);
        --running_;
        partials.push_back({request_id, lane->lane, sequence.index, std::move(sequence.response)});
      }
      ReleaseGroup(group);
      return true;
    });
  }
  return partials;
}

absl::StatusOr<std::vector<float>> NativeEngine::Score(const std::vector<int32_t>& ids,
                                                       bool one_by_one) {
  GenerationRequest request;
  request.prompt_ids = ids;
  request.sample_indices = {0};
  // The last token predicts nothing, so that a sequence may fill the context.
  if (ids.size() > 1) request.prompt_ids.pop_back();
  FRESHET_RETURN_IF_ERROR(CheckRequest(request));
  if (ids.back() < 0 || ids.back() >= config_.vocab_size) {
    return InvalidArgument("token ", ids.back(), " is outside of the vocabulary of ",
                           config_.vocab_size);
  }
  LaneState& lane = *lanes_[static_cast<int>(Lane::kRollout)];
  if (!lane.snapshot.has_value()) return FailedPrecondition("the engine has no weights yet");
  const int64_t needed = CeilDiv(static_cast<int64_t>(ids.size()) - 1, kKvBlockTokens);
  if (needed > cache_.num_free()) {
    return ResourceExhausted("no room for ", ids.size(), " tokens: ", needed,
                             " cache blocks are needed, ", cache_.num_free(), " are free");
  }
  std::vector<float> logprobs;
  std::vector<int32_t> blocks;
  absl::Status status;
  try {
    const c10::InferenceMode inference;
    blocks.reserve(ids.size() / kKvBlockTokens + 1);
    const auto last = static_cast<int64_t>(ids.size()) - 1;
    const int64_t chunk = one_by_one ? 1 : options_.max_batch_tokens;
    for (int64_t begin = 0; begin < last; begin += chunk) {
      Batch batch;
      for (int64_t i = begin; i < std::min(last, begin + chunk); ++i) {
        if (i % kKvBlockTokens == 0) blocks.push_back(cache_.Allocate());
        batch.Add(ids[static_cast<size_t>(i)], i, blocks);
        batch.wants.push_back({nullptr, nullptr, batch.size() - 1});
      }
      RunBatch(lane, batch);
      const at::Tensor table = at::log_softmax(model_->logits, -1);
      const float* rows = table.const_data_ptr<float>();
      for (int64_t i = 0; i < batch.size(); ++i) {
        const int32_t next = ids[static_cast<size_t>(begin + i) + 1];
        logprobs.push_back(rows[i * config_.vocab_size + next]);
      }
    }
  } catch (const std::exception& error) {
    status = Internal("the engine failed: ", std::string(error.what()).substr(0, 300));
  }
  for (const int32_t block : blocks) cache_.Release(block);
  FRESHET_RETURN_IF_ERROR(status);
  return logprobs;
}

void NativeEngine::ForgetCache(Group& group) {
  group.fed = 0;
  for (Sequence& sequence : group.sequences) sequence.fed = 0;
}

absl::Status NativeEngine::LoadWeights(Lane lane, const WeightSnapshot& snapshot) {
  const int64_t expected = model_->layout.num_elements * static_cast<int64_t>(sizeof(float));
  if (snapshot.bytes == nullptr || static_cast<int64_t>(snapshot.bytes->size()) != expected) {
    return InvalidArgument("weights of version ", snapshot.manifest.policy.version, ": ",
                           snapshot.bytes == nullptr ? 0 : snapshot.bytes->size(),
                           " bytes, this model has ", expected);
  }
  try {
    const c10::InferenceMode inference;
    // The tensor shares the snapshot's immutable bytes and keeps them alive.
    const WeightBytes owner = snapshot.bytes;
    // from_blob wants a mutable pointer; nothing writes through it.
    void* data = const_cast<std::byte*>(owner->data());
    const at::Tensor flat = at::from_blob(
        data, {model_->layout.num_elements}, [owner](void*) {}, at::kFloat);
    LaneState& state = *lanes_[static_cast<int>(lane)];
    state.weights =
        CastWeights(ViewWeights(model_->layout, flat), options_.bf16 ? at::kBFloat16 : at::kFloat);
    if (lane == Lane::kRollout && state.snapshot.has_value()) ++stats_.weight_swaps;
    state.snapshot = snapshot;
    if (options_.kv == KvPolicy::kRecompute) {
      for (Group& group : state.groups) ForgetCache(group);
    }
  } catch (const std::exception& error) {
    return Internal("weights could not be loaded: ", std::string(error.what()).substr(0, 300));
  }
  return absl::OkStatus();
}

PolicyVersion NativeEngine::version(Lane lane) const {
  const LaneState& state = *lanes_[static_cast<int>(lane)];
  return state.snapshot.has_value() ? state.snapshot->manifest.policy : PolicyVersion{-1, -1};
}

EngineStats NativeEngine::stats() const {
  EngineStats stats = stats_;
  stats.running_sequences = running_;
  stats.capacity_sequences = options_.max_sequences;
  stats.cache_blocks = cache_.num_blocks();
  stats.cache_blocks_free = cache_.num_free();
  return stats;
}

}  // namespace freshet
