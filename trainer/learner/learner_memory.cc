#include "trainer/learner/learner_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "base/str_cat.h"
#include "model/head_chunk.h"
#include "model/parameter_layout.h"
#include "trainer/learner/microbatch_sizes.h"
#include "trainer/learner/shard_layout.h"

namespace freshet {
namespace {

constexpr int64_t kFloat = 4;
// Of rank 0 only.
constexpr const char* kPublishedVersions = "published versions";
constexpr const char* kGatheredWeights = "gathered weights";
constexpr const char* kWholeState = "state before it is divided";  // and gradients
constexpr const char* kCheckpointBlocks = "blocks of a checkpoint";

// Sizes of a row of a layer's tensors, in numbers.
struct Widths {
  int64_t hidden, queries, keys, inner;
};

// The numbers of a layer's MLP in the type of the computation (`number` bytes) and in fp32.
int64_t MlpBytes(const ModelConfig& model, const Widths& w, int64_t layer, int64_t number) {
  // Input, gate and up, their product.
  if (!model.IsMoe(layer)) return number * (w.hidden + 3 * w.inner);
  const int64_t experts = model.num_experts_per_tok;
  const int64_t inner = model.moe_intermediate_size;
  // Each expert's rows are gathered and weighted; the router's probabilities.
  return experts * (number * (w.hidden + 3 * inner) + 2 * kFloat * w.hidden) +
         kFloat * (w.hidden + 3 * model.num_experts);
}

int64_t LayerBytes(const ModelConfig& model, const Widths& w, int64_t layer, int64_t number) {
  // The residual stream before attention and before the MLP.
  int64_t bytes = 2 * kFloat * w.hidden;
  bytes += number * w.hidden;  // input of q, k and v
  // Queries, keys, values and output of attention. In fp32 the values are part of the product of q,
  // k and v; in bf16 they are copies, like the output that the next product takes.
  const int64_t heads = w.queries / model.head_dim;
  bytes += kFloat * (2 * w.queries + 2 * w.keys + heads);
  bytes += number == kFloat ? kFloat * (w.queries + w.keys) : number * w.queries;
  if (model.qk_norm) bytes += kFloat * (w.queries + w.keys);
  return bytes + MlpBytes(model, w, layer, number);
}

Widths WidthsOf(const ModelConfig& model) {
  return {model.hidden_size, model.num_attention_heads * model.head_dim,
          model.num_key_value_heads * model.head_dim, model.intermediate_size};
}

}  // namespace

int64_t ActivationBytesPerToken(const ModelConfig& model, bool bf16, bool checkpointing) {
  const Widths widths = WidthsOf(model);
  const int64_t number = bf16 ? 2 : kFloat;
  int64_t sum = 0;
  int64_t largest = 0;
  for (int64_t layer = 0; layer < model.num_hidden_layers; ++layer) {
    const int64_t bytes = LayerBytes(model, widths, layer, number);
    largest = std::max(largest, bytes);
    sum += checkpointing ? kFloat * model.hidden_size : bytes;
  }
  // Input and output of the head, and the gradients of a layer.
  return sum + 3 * kFloat * model.hidden_size + largest * (checkpointing ? 2 : 1);
}

int64_t PublishedBytes(const PolicyLearnerOptions& options) {
  return MakeParameterLayout(options.model).num_elements * (options.bf16 ? 2 : kFloat);
}

namespace {

using Place = MemoryItem::Place;

int64_t LargestBlock(const ShardLayout& layout) {
  int64_t largest = 0;
  for (const ShardLayout::Block& block : layout.blocks()) largest = std::max(largest, block.size);
  return largest;
}

// Where all of the state is one rank's.
MemoryPlan PlanWholeState(const PolicyLearnerOptions& options, int64_t elements) {
  const int64_t copy = elements * kFloat;
  const int64_t rounded = options.bf16 ? elements * 2 : 0;
  MemoryPlan plan = {{"weights", copy + rounded, Place::kDivided},
                     {"gradients", copy, Place::kDivided},
                     {"optimizer state", 2 * copy, Place::kDivided}};
  if (options.loss.NeedsReference()) {
    plan.push_back({"reference weights", PublishedBytes(options), Place::kDivided});
  }
  return plan;
}

// Sharding::kOptimizer: the part has masters, moments, and rounded weights.
MemoryPlan PlanDividedOptimizer(const PolicyLearnerOptions& options, int64_t elements,
                                int64_t ranks) {
  const int64_t part = (elements + ranks - 1) / ranks;
  MemoryPlan plan = {{"weights", PublishedBytes(options)},
                     {"gradients", elements * kFloat},
                     {"part of the state", part * (3 * kFloat + (options.bf16 ? 2 : 0))}};
  if (options.loss.NeedsReference()) {
    plan.push_back({"reference weights", PublishedBytes(options)});
  }
  return plan;
}

// Sharding::kFull.
MemoryPlan PlanDividedWeights(const PolicyLearnerOptions& options, const ShardLayout& layout,
                              int64_t elements, int64_t ranks) {
  const int64_t largest = LargestBlock(layout);
  const int threads = MicrobatchThreads(options.threads, largest);
  const int64_t part = (elements + ranks - 1) / ranks;
  const int64_t number = options.bf16 ? 2 : kFloat;
  // The part has masters, moments, gradients, and rounded weights.
  MemoryPlan plan = {{"part of the state", part * (4 * kFloat + (options.bf16 ? 2 : 0))},
                     // One is computed with, two are gathered.
                     {"layers being computed", 3 * largest * number},
                     // Those of a microbatch on each thread, their sum, and one that is added up.
                     {"gradients of layers", largest * kFloat * (threads + 2)}};
  if (options.loss.NeedsReference()) plan.push_back({"reference weights", part * number});
  return plan;
}

// The most that are computed at once, however long the samples are. Shorter trees need fewer
// tokens, but more microbatches fit.
struct ConcurrentMicrobatches {
  int64_t count = 1;
  int64_t microbatch_tokens = 0;  // of one
  int64_t tokens = 0;             // of all
};

int64_t TreeTokens(const BatchShape& batch) {
  return SumOfSizes(batch.prefix, ProductOfSizes({batch.suffixes, batch.suffix - 1}));
}

// `gradient_elements`: of a microbatch.
ConcurrentMicrobatches MostMicrobatches(const PolicyLearnerOptions& options,
                                        const BatchShape& batch, bool on_gpu,
                                        int64_t gradient_elements) {
  const int64_t elements = MakeParameterLayout(options.model).num_elements;
  const int64_t max_tokens = options.max_tokens_per_microbatch;
  const int64_t tree = TreeTokens(batch);
  const int64_t all = ProductOfSizes({batch.trees, tree});
  const int64_t limit = on_gpu ? max_tokens : MicrobatchTokens(all, tree, max_tokens, elements);
  ConcurrentMicrobatches concurrent;
  concurrent.count =
      std::min<int64_t>(MicrobatchThreads(options.threads, gradient_elements), batch.trees);
  concurrent.microbatch_tokens = std::min(all, std::max(limit, tree));
  // EndOfWave: beyond max_tokens there is only one.
  const int64_t tokens =
      std::min(max_tokens, ProductOfSizes({concurrent.count, concurrent.microbatch_tokens}));
  concurrent.tokens = std::min(all, std::max(concurrent.microbatch_tokens, tokens));
  return concurrent;
}

struct PassBytes {
  int64_t activations = 0;
  int64_t logits = 0;
};

// Of Sharding::kFull: the layer inputs of all microbatches, and the activations of one layer.
PassBytes BlockwisePassBytes(const PolicyLearnerOptions& options, const BatchShape& batch,
                             const ConcurrentMicrobatches& concurrent, int64_t chunk) {
  const ModelConfig& model = options.model;
  const int64_t token = ActivationBytesPerToken(model, options.bf16, /*checkpointing=*/true);
  const int64_t rest =
      std::max<int64_t>(ProductOfSizes({batch.trees, TreeTokens(batch)}) - concurrent.tokens, 0);
  return {
      SumOfSizes(ProductOfSizes({concurrent.tokens, token}),
                 ProductOfSizes({rest, model.num_hidden_layers + 1, kFloat * model.hidden_size})),
      concurrent.count * chunk};
}

// Otherwise: the activations of the concurrent microbatches. The gradient of the embedding, of
// `embedding` bytes, is the last that a backward pass makes, when logits and activations are gone.
// So each microbatch needs the larger of both; this is what it needs beyond that gradient.
PassBytes WholePassBytes(const PolicyLearnerOptions& options,
                         const ConcurrentMicrobatches& concurrent, int64_t chunk,
                         int64_t embedding) {
  const int64_t token =
      ActivationBytesPerToken(options.model, options.bf16, options.activation_checkpointing);
  const int64_t logits = std::max<int64_t>(chunk - embedding, 0);
  PassBytes sum;
  int64_t rest = concurrent.tokens;
  for (int64_t i = 0; i < concurrent.count; ++i) {
    const int64_t tokens = std::min(concurrent.microbatch_tokens, rest);
    rest -= tokens;
    const int64_t both = SumOfSizes(chunk, ProductOfSizes({tokens, token}));
    sum.logits += logits;
    sum.activations = SumOfSizes(sum.activations, std::max<int64_t>(both - embedding, 0) - logits);
  }
  return sum;
}

}  // namespace

MemoryPlan PlanLearner(PolicyLearnerOptions options, const BatchShape& batch, int64_t ranks) {
  const bool on_gpu = absl::StartsWith(options.device, "cuda");
  if (on_gpu) options.threads = 1;
  const ModelConfig& model = options.model;
  const ParameterLayout layout = MakeParameterLayout(model);
  const int64_t elements = layout.num_elements;
  const int64_t published = PublishedBytes(options);
  const Sharding sharding = ranks > 1 ? options.sharding : Sharding::kNone;
  const int64_t block = LargestBlock(ShardLayout(layout, static_cast<int>(ranks)));
  const bool divides_weights = sharding == Sharding::kFull;
  const ConcurrentMicrobatches concurrent =
      MostMicrobatches(options, batch, on_gpu, divides_weights ? block : elements);
  MemoryPlan plan = sharding == Sharding::kNone ? PlanWholeState(options, elements)
                    : sharding == Sharding::kOptimizer
                        ? PlanDividedOptimizer(options, elements, ranks)
                        : PlanDividedWeights(options, ShardLayout(layout, static_cast<int>(ranks)),
                                             elements, ranks);
  // The first adds to the gradients in place.
  const int64_t gradient_copies = divides_weights ? 0 : concurrent.count - 1;
  if (gradient_copies > 0) {
    plan.push_back({"gradients of other microbatches", gradient_copies * elements * kFloat,
                    sharding == Sharding::kNone ? Place::kDivided : Place::kDevice,
                    /*is_upper_bound=*/true});
  }
  const int64_t chunk = LogitsBytes(model.vocab_size, /*on_cpu=*/!on_gpu);
  const int64_t head = kFloat * model.vocab_size * model.hidden_size;
  const bool tied = model.tie_word_embeddings;
  const PassBytes pass = divides_weights
                             ? BlockwisePassBytes(options, batch, concurrent, chunk)
                             : WholePassBytes(options, concurrent, chunk, /*embedding=*/head);
  plan.push_back({"activations", pass.activations, Place::kDevice, /*is_upper_bound=*/true});
  plan.push_back({"logits", pass.logits});
  // One gradient of the embedding. If tied, also one of the head: per microbatch, or one with
  // Sharding::kFull.
  const int64_t tied_heads = divides_weights ? 1 : concurrent.count;
  const int64_t heads = tied ? 1 + tied_heads : 1;
  plan.push_back({"gradients of embedding and head", head * heads});
  plan.push_back({kPublishedVersions, 2 * published, Place::kHost});
  if (sharding == Sharding::kFull) plan.push_back({kGatheredWeights, published, Place::kHost});
  if (sharding != Sharding::kNone) {
    // A block of each column, and one that is gathered.
    plan.push_back({kCheckpointBlocks, (kSnapshotBytes + kFloat) * block, Place::kHost});
    if (options.holds_whole_state) {
      plan.push_back({kWholeState, elements * (kSnapshotBytes + kFloat + (options.bf16 ? 2 : 0)),
                      on_gpu ? Place::kDevice : Place::kHost, /*is_upper_bound=*/on_gpu});
    }
  }
  if (on_gpu) {
    plan.push_back({"weights in host memory", published, Place::kHost});
    if (options.gpu_copies > 0) {
      plan.push_back({kGpuCopies, options.gpu_copies * published});
    }
  }
  return plan;
}

MemoryPlan PlanFrozenLearner(const PolicyLearnerOptions& options) {
  const int64_t published = PublishedBytes(options);
  return {{"weights", published, Place::kHost}, {kPublishedVersions, 2 * published, Place::kHost}};
}

void AddRanks(int64_t ranks, bool shards, MemoryPlan& plan) {
  if (ranks <= 1) return;
  MemoryPlan rank = plan;
  const auto versions = std::ranges::find(plan, kPublishedVersions, &MemoryItem::name);
  if (shards && versions != plan.end()) {
    rank.push_back({"shards of versions", versions->bytes / ranks, Place::kHost});
  }
  std::erase_if(rank, [](const MemoryItem& item) {
    return item.name == kPublishedVersions || item.name == kGatheredWeights ||
           item.name == kCheckpointBlocks || item.name == kWholeState || item.name == kGpuCopies;
  });
  for (const bool is_upper_bound : {false, true}) {
    MemoryPlan part = rank;
    std::erase_if(part,
                  [&](const MemoryItem& item) { return item.is_upper_bound != is_upper_bound; });
    plan.push_back({is_upper_bound ? "activations of other ranks" : "other ranks",
                    ProductOfSizes({ranks - 1, TotalBytes(part)}), MemoryItem::Place::kHost,
                    is_upper_bound});
  }
}

SnapshotDecision DecideSnapshot(const PolicyLearnerOptions& options, int64_t bytes,
                                int64_t tokens) {
  const int64_t activations =
      ProductOfSizes({tokens, ActivationBytesPerToken(options.model, options.bf16,
                                                      options.activation_checkpointing)});
  const int64_t available = options.available_memory();
  const bool copies = available >= SumOfSizes(bytes, activations);
  return {copies, StrCat("a copy takes ", bytes, " bytes, the next step up to ", activations, ", ",
                         available, " are available")};
}

}  // namespace freshet
