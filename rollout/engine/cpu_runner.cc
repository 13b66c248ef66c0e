#include "rollout/engine/cpu_runner.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <stdexcept>
#include <utility>

#include "model/dtype.h"
#include "model/kernels/row_ops.h"
#include "model/parameter_layout.h"
#include "rollout/engine/paged_attention.h"

namespace freshet {

// Members without data: the model has no such tensors.
struct CpuRunner::Mlp {
  PackedMatrix gate_up, down;
  const float* gate_up_bias = nullptr;
  const float* down_bias = nullptr;
};

struct CpuRunner::Layer {
  const float* input_norm = nullptr;
  PackedMatrix qkv;
  const float* qkv_bias = nullptr;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  PackedMatrix o;
  const float* o_bias = nullptr;
  const float* post_norm = nullptr;
  PackedMatrix router;  // fp32
  std::vector<Mlp> mlps;
};

// A copy of an arena in the kernels' layout and format.
struct CpuRunner::Weights {
  Weights(MatrixFormat format, const ModelConfig& config)
      : embed(format == MatrixFormat::kInt8 ? MatrixFormat::kBfloat16 : format,
              config.hidden_size) {}

  std::weak_ptr<const WeightArena> source;
  std::deque<std::vector<float>> vectors;
  Activations embed;  // [vocab_size][hidden]
  std::vector<Layer> layers;
  const float* norm = nullptr;
  PackedMatrix lm_head;  // a scalar head is fp32
};

// What a pass computes, a row per token. Kept between passes.
struct CpuRunner::Buffers {
  Buffers(const ModelConfig& config, MatrixFormat format, int threads)
      : normed(format, config.hidden_size),
        router_input(MatrixFormat::kFloat32, config.hidden_size),
        attended(format, config.num_attention_heads * config.head_dim),
        wanted(config.scalar_head ? MatrixFormat::kFloat32 : format, config.hidden_size),
        expert_input(format, config.hidden_size),
        scratch(static_cast<size_t>(threads)) {}

  std::vector<float> x;  // residual stream [rows][hidden]
  std::vector<float> qkv;
  std::vector<QueryRun> runs;
  std::vector<float> attention;  // [rows][heads * head_dim]
  std::vector<float> gate_up;
  std::vector<float> router;                                        // [rows][experts]
  std::vector<std::vector<std::pair<int64_t, float>>> expert_rows;  // with their weights
  std::vector<float> expert_out;
  std::vector<float> expert_sums;  // [rows][hidden]
  std::vector<float> logits;
  Activations normed;
  Activations router_input;
  Activations attended;  // attention's output
  Activations wanted;    // rows that need logits
  Activations expert_input;
  std::vector<Activations> inner;           // of MLPs, by size
  std::vector<std::vector<float>> scratch;  // by thread
};

namespace {

// Makes room for `size` numbers, whose contents are then undefined.
template <typename Vector>
auto* Room(Vector& buffer, int64_t size) {
  if (static_cast<int64_t>(buffer.size()) < size) {
    buffer = Vector();  // before the new one is allocated
    buffer.resize(static_cast<size_t>(size));
  }
  return buffer.data();
}

struct RoutedExpert {
  int64_t expert = 0;
  float weight = 0;
};

// The experts of a token, likeliest first; of equal ones the first.
std::vector<RoutedExpert> ChooseExperts(const float* logits, const ModelConfig& config) {
  std::vector<RoutedExpert> shares;
  const float max = *std::max_element(logits, logits + config.num_experts);
  float total = 0;
  for (int64_t e = 0; e < config.num_experts; ++e) {
    shares.push_back({e, std::exp(logits[e] - max)});
    total += shares.back().weight;
  }
  std::ranges::stable_sort(shares, std::ranges::greater(), &RoutedExpert::weight);
  shares.resize(static_cast<size_t>(config.num_experts_per_tok));
  if (config.norm_topk_prob) {
    total = 0;
    for (const RoutedExpert& share : shares) total += share.weight;
  }
  for (RoutedExpert& share : shares) share.weight /= total;
  return shares;
}

// Reads an arena of fp32 or bf16 numbers.
class ArenaReader {
 public:
  // `arena` must outlive the reader. With `round`, fp32 numbers are rounded to bf16.
  ArenaReader(const std::byte* arena, Dtype dtype, bool round, ThreadPool& pool)
      : floats_(reinterpret_cast<const float*>(arena)),
        bf16_(reinterpret_cast<const uint16_t*>(arena)),
        is_bf16_(dtype == Dtype::kBf16),
        round_(round),
        pool_(pool) {}

  void Read(int64_t offset, int64_t size, float* to) const {
    for (int64_t i = offset; i < offset + size; ++i, ++to) {
      *to = is_bf16_ ? WidenBf16(bf16_[i]) : floats_[i];
      if (round_) *to = WidenBf16(RoundToBf16(*to));
    }
  }
  // `to` becomes empty if the model does not have the block.
  void Read(const ParameterBlock& block, std::vector<float>& to) const {
    to.resize(block.shape.empty() ? 0 : NumElements(block));
    Read(block.offset, static_cast<int64_t>(to.size()), to.data());
  }
  // Reuses the memory of `to`, which is either empty or holds earlier weights of the block.
  void Pack(const ParameterBlock& block, MatrixFormat format, PackedMatrix& to) const {
    if (block.shape.empty()) return;
    const auto pack = [&](const auto* arena) {
      if (to.rows() == 0) {
        to = PackedMatrix(arena + block.offset, block.shape[0], block.shape[1], format, pool_);
      } else {
        to.Repack(arena + block.offset, pool_);
      }
    };
    return is_bf16_ ? pack(bf16_) : pack(floats_);
  }
  // An fp32 matrix of numbers that may have to be rounded.
  void PackFloats(const ParameterBlock& block, PackedMatrix& to) const {
    if (block.shape.empty()) return;
    std::vector<float> numbers;
    Read(block, numbers);
    to = {numbers.data(), block.shape[0], block.shape[1], MatrixFormat::kFloat32, pool_};
  }

 private:
  static size_t NumElements(const ParameterBlock& block) {
    int64_t size = 1;
    for (const int64_t dim : block.shape) size *= dim;
    return static_cast<size_t>(size);
  }

  const float* const floats_;
  const uint16_t* const bf16_;
  const bool is_bf16_;
  const bool round_;
  ThreadPool& pool_;
};

}  // namespace

CpuRunner::CpuRunner(const ModelConfig& config, const CpuRunnerOptions& options)
    : config_(config),
      options_(options),
      pool_(options.threads),
      rope_(MakeRopeTables(config)),
      cache_({config.num_hidden_layers, config.num_key_value_heads, config.head_dim,
              options.kv_format},
             options.cache_blocks),
      buffers_(std::make_unique<Buffers>(config, options.format, options.threads)) {}

CpuRunner::~CpuRunner() = default;

void CpuRunner::LoadWeights(Lane lane, const WeightBytes& arena, Dtype dtype) {
  for (const std::shared_ptr<Weights>& other : lanes_) {
    if (other != nullptr && other->source.lock() == arena) {
      lanes_[static_cast<int>(lane)] = other;
      return;
    }
  }
  const ParameterLayout layout = MakeParameterLayout(config_);
  const ArenaReader reader(arena->data(), dtype, options_.format == MatrixFormat::kBfloat16, pool_);
  // Reuses the memory: Linux zeroes new pages, which takes longer than the copy.
  std::shared_ptr<Weights> weights = std::move(lanes_[static_cast<int>(lane)]);
  if (weights == nullptr || weights.use_count() > 1) {
    weights = std::make_shared<Weights>(options_.format, config_);
  }
  weights->source = arena;
  size_t vectors = 0;
  const auto vector = [&](const ParameterBlock& block) -> const float* {
    if (block.shape.empty()) return nullptr;
    if (vectors == weights->vectors.size()) weights->vectors.emplace_back();
    std::vector<float>& numbers = weights->vectors[vectors++];
    reader.Read(block, numbers);
    return numbers.data();
  };
  const auto matrix = [&](const ParameterBlock& block, PackedMatrix& to) {
    reader.Pack(block, options_.format, to);
  };
  weights->embed.Resize(config_.vocab_size);
  std::vector<std::vector<float>> rows(static_cast<size_t>(options_.threads));
  for (std::vector<float>& row : rows) row.resize(static_cast<size_t>(config_.hidden_size));
  pool_.For(config_.vocab_size, [&](int64_t id, int thread) {
    float* row = rows[static_cast<size_t>(thread)].data();
    reader.Read(layout.embed.offset + id * config_.hidden_size, config_.hidden_size, row);
    weights->embed.Store(id, row);
  });
  weights->layers.resize(layout.layers.size());
  for (size_t l = 0; l < layout.layers.size(); ++l) {
    const ParameterLayout::Layer& from = layout.layers[l];
    Layer& to = weights->layers[l];
    to.input_norm = vector(from.input_norm);
    matrix(from.qkv, to.qkv);
    to.qkv_bias = vector(from.qkv_bias);
    to.q_norm = vector(from.q_norm);
    to.k_norm = vector(from.k_norm);
    matrix(from.o, to.o);
    to.o_bias = vector(from.o_bias);
    to.post_norm = vector(from.post_norm);
    reader.PackFloats(from.router, to.router);
    to.mlps.resize(from.mlps.size());
    for (size_t m = 0; m < from.mlps.size(); ++m) {
      matrix(from.mlps[m].gate_up, to.mlps[m].gate_up);
      matrix(from.mlps[m].down, to.mlps[m].down);
      to.mlps[m].gate_up_bias = vector(from.mlps[m].gate_up_bias);
      to.mlps[m].down_bias = vector(from.mlps[m].down_bias);
    }
  }
  weights->norm = vector(layout.norm);
  if (config_.scalar_head) {
    reader.PackFloats(layout.lm_head, weights->lm_head);
  } else {
    matrix(layout.lm_head, weights->lm_head);
  }
  lanes_[static_cast<int>(lane)] = std::move(weights);
}

const float* CpuRunner::Run(Lane lane, const EngineBatch& batch) {
  if (lanes_[static_cast<int>(lane)] == nullptr) throw std::runtime_error("no weights are loaded");
  const Weights& weights = *lanes_[static_cast<int>(lane)];
  const int64_t rows = batch.size();
  const int64_t hidden = config_.hidden_size;
  Buffers& b = *buffers_;
  // Here, because tasks of the pool must not throw.
  int64_t scratch = hidden;
  const int64_t heads_per_kv_head = config_.num_attention_heads / config_.num_key_value_heads;
  b.runs = FindQueryRuns(batch.queries, heads_per_kv_head);
  for (const QueryRun& run : b.runs) {
    scratch =
        std::max(scratch, PagedScratch(batch.queries, run, heads_per_kv_head, config_.head_dim));
  }
  for (std::vector<float>& buffer : b.scratch) Room(buffer, scratch);
  Embed(weights, batch);
  float* x = b.x.data();
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    const Layer& layer = weights.layers[l];
    Normalize(layer.input_norm, rows, b.normed);
    Attend(layer, static_cast<int64_t>(l), batch);
    MultiplyRows(b.attended, rows, layer.o, {x, hidden, layer.o_bias, /*add=*/true});
    if (layer.router.rows() > 0) {
      AddExperts(layer, rows);
    } else {
      Normalize(layer.post_norm, rows, b.normed);
      const Mlp& mlp = layer.mlps.front();
      const Activations& inner = GatedActivations(mlp, b.normed, rows);
      MultiplyRows(inner, rows, mlp.down, {x, hidden, mlp.down_bias, /*add=*/true});
    }
  }
  const auto wanted = static_cast<int64_t>(batch.wants.size());
  if (wanted == 0) return nullptr;
  b.wanted.Resize(wanted);
  pool_.For(wanted, [&](int64_t i, int thread) {
    float* row = b.scratch[static_cast<size_t>(thread)].data();
    RmsNormRow(x + batch.wants[static_cast<size_t>(i)].row * hidden, weights.norm, hidden,
               config_.rms_norm_eps, row);
    b.wanted.Store(i, row);
  });
  const int64_t outputs = config_.num_outputs();
  float* logits = Room(b.logits, wanted * outputs);
  MultiplyRows(b.wanted, wanted, weights.lm_head, {logits, outputs}, Phase::kHead);
  return logits;
}

void CpuRunner::Embed(const Weights& weights, const EngineBatch& batch) {
  const int64_t hidden = config_.hidden_size;
  float* x = Room(buffers_->x, batch.size() * hidden);
  pool_.For(batch.size(), [&](int64_t i, int) {
    weights.embed.Load(batch.token_ids[static_cast<size_t>(i)], x + i * hidden);
  });
}

void CpuRunner::Normalize(const float* weight, int64_t rows, Activations& out) {
  const int64_t hidden = config_.hidden_size;
  out.Resize(rows);
  pool_.For(rows, [&](int64_t i, int thread) {
    float* row = buffers_->scratch[static_cast<size_t>(thread)].data();
    RmsNormRow(buffers_->x.data() + i * hidden, weight, hidden, config_.rms_norm_eps, row);
    out.Store(i, row);
  });
}

void CpuRunner::Attend(const Layer& layer, int64_t index, const EngineBatch& batch) {
  const int64_t heads = config_.num_attention_heads;
  const int64_t kv_heads = config_.num_key_value_heads;
  const int64_t dim = config_.head_dim;
  const int64_t width = (heads + 2 * kv_heads) * dim;
  const int64_t rows = batch.size();
  Buffers& b = *buffers_;
  float* qkv = Room(b.qkv, rows * width);
  MultiplyRows(b.normed, rows, layer.qkv, {qkv, width, layer.qkv_bias});
  pool_.For(rows, [&](int64_t i, int) {
    float* row = qkv + i * width;
    const int64_t angles = batch.positions[static_cast<size_t>(i)] * (dim / 2);
    for (int64_t h = 0; h < heads + kv_heads; ++h) {
      float* head = row + h * dim;
      const float* norm = h < heads ? layer.q_norm : layer.k_norm;
      if (norm != nullptr) RmsNormRow(head, norm, dim, config_.rms_norm_eps, head);
      RopeHead(head, rope_.cos.data() + angles, rope_.sin.data() + angles, dim / 2,
               /*back=*/false, head);
    }
    const auto& [block, slot] = batch.slots[static_cast<size_t>(i)];
    cache_.Write(index, block, slot, row + heads * dim, row + (heads + kv_heads) * dim);
  });
  float* attention = Room(b.attention, rows * heads * dim);
  const auto tasks = static_cast<int64_t>(b.runs.size()) * kv_heads;
  // Not that of products, which depends on measured speeds.
  const CpuKernels kernels = BestCpuKernels();
  phases().Enter(Phase::kAttention);
  pool_.For(tasks, [&](int64_t task, int thread) {
    const QueryRun& run = b.runs[static_cast<size_t>(task / kv_heads)];
    const AttentionRows part{qkv + run.first * width, width, attention + run.first * heads * dim,
                             heads * dim, heads};
    PagedAttention(cache_, index, config_.Window(index), batch.queries, run, task % kv_heads, part,
                   kernels, b.scratch[static_cast<size_t>(thread)].data());
  });
  phases().Enter(Phase::kOther);
  b.attended.Resize(rows);
  pool_.For(rows, [&](int64_t i, int) { b.attended.Store(i, attention + i * heads * dim); });
}

Activations& CpuRunner::GatedActivations(const Mlp& mlp, const Activations& x, int64_t rows) {
  Buffers& b = *buffers_;
  const int64_t inner = mlp.down.columns();
  float* gate_up = Room(b.gate_up, rows * 2 * inner);
  MultiplyRows(x, rows, mlp.gate_up, {gate_up, 2 * inner, mlp.gate_up_bias});
  auto product = std::ranges::find(b.inner, inner, &Activations::columns);
  if (product == b.inner.end()) product = b.inner.emplace(b.inner.end(), options_.format, inner);
  product->Resize(rows);
  pool_.For(rows, [&](int64_t i, int) {
    float* row = gate_up + i * 2 * inner;
    SwiGluRow(row, inner, row);
    product->Store(i, row);
  });
  return *product;
}

// Sends every token to the experts with the highest router probability (Qwen3-MoE; Shazeer et al.
// 2017, section 2.1) and adds their weighted outputs in the order of the experts.
void CpuRunner::AddExperts(const Layer& layer, int64_t rows) {
  Buffers& b = *buffers_;
  const int64_t hidden = config_.hidden_size;
  const int64_t experts = layer.router.rows();
  Normalize(layer.post_norm, rows, b.router_input);
  float* router = Room(b.router, rows * experts);
  MultiplyRows(b.router_input, rows, layer.router, {router, experts});
  Room(b.expert_rows, experts);
  for (auto& chosen : b.expert_rows) chosen.clear();
  float* sums = Room(b.expert_sums, rows * hidden);
  std::fill_n(sums, rows * hidden, 0.0F);
  for (int64_t i = 0; i < rows; ++i) {
    for (const RoutedExpert& share : ChooseExperts(router + i * experts, config_)) {
      b.expert_rows[static_cast<size_t>(share.expert)].emplace_back(i, share.weight);
    }
  }
  for (size_t e = 0; e < layer.mlps.size(); ++e) {
    const std::vector<std::pair<int64_t, float>>& chosen = b.expert_rows[e];
    const auto count = static_cast<int64_t>(chosen.size());
    if (count == 0) continue;
    b.expert_input.Resize(count);
    for (int64_t i = 0; i < count; ++i) {
      const auto* row =
          reinterpret_cast<const float*>(b.router_input.row(chosen[static_cast<size_t>(i)].first));
      b.expert_input.Store(i, row);
    }
    const Activations& inner = GatedActivations(layer.mlps[e], b.expert_input, count);
    float* out = Room(b.expert_out, count * hidden);
    MultiplyRows(inner, count, layer.mlps[e].down, {out, hidden, layer.mlps[e].down_bias});
    for (int64_t i = 0; i < count; ++i) {
      const auto& [row, weight] = chosen[static_cast<size_t>(i)];
      AddScaledRow(out + i * hidden, weight, hidden, sums + row * hidden);
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    AddScaledRow(sums + i * hidden, 1, hidden, b.x.data() + i * hidden);
  }
}

void CpuRunner::MultiplyRows(const Activations& x, int64_t rows, const PackedMatrix& matrix,
                             ProductOutput out, Phase phase) {
  out.round = matrix.format() == MatrixFormat::kBfloat16;
  phases().Enter(phase);
  Multiply(x, rows, matrix, out, options_.kernels, pool_);
  phases().Enter(Phase::kOther);
}

}  // namespace freshet
