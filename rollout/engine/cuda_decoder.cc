#include "rollout/engine/cuda_decoder.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

constexpr int64_t kMostRows = 512;
// Enough for the multiprocessors of a GPU.
constexpr int64_t kWantedBlocks = 264;
constexpr int64_t kMostSplits = 16;
constexpr int64_t kNumbersPerRow = 4;  // of the inputs: token, position, slot, number of keys

// The next of 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, ...: batches are recorded at these sizes.
int64_t RoundUpRows(int64_t rows) {
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  const int64_t between = power / 4 * 3;
  return power >= 32 && rows <= between ? between : power;
}

int64_t Splits(int64_t rows, int64_t kv_heads) {
  return std::clamp<int64_t>(kWantedBlocks / (rows * kv_heads), 1, kMostSplits);
}

// Why the kernels cannot compute the model, or "".
std::string Unsupported(const ModelConfig& config) {
  const int64_t dim = config.head_dim;
  if (dim < FRESHET_DECODE_DIM_LEAST || dim > FRESHET_DECODE_DIM_MOST ||
      !std::has_single_bit(static_cast<uint64_t>(dim))) {
    return StrCat("head_dim ", dim);
  }
  const int64_t queries = config.num_attention_heads / config.num_key_value_heads;
  if (queries > FRESHET_DECODE_QUERIES_MOST) return StrCat(queries, " query heads per key head");
  const ParameterLayout layout = MakeParameterLayout(config);
  for (const ParameterLayout::Layer& layer : layout.layers) {
    if (!layer.router.shape.empty()) return "a mixture of experts";
    const ParameterLayout::Mlp& mlp = layer.mlps.front();
    if (!layer.o_bias.shape.empty() || !mlp.gate_up_bias.shape.empty() ||
        !mlp.down_bias.shape.empty()) {
      return "biases other than those of queries, keys and values";
    }
  }
  return "";
}

const float* FloatsOf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
}

}  // namespace

std::unique_ptr<CudaDecoder> CudaDecoder::Create(const Transformer& model, bool bf16,
                                                 int64_t max_sequences, AtenKvCache& cache) {
  if (!cache.data().is_cuda()) return nullptr;
  const CudaKernels* kernels = CudaKernels::Get();
  if (kernels == nullptr) return nullptr;
  const std::string reason = Unsupported(model.config());
  if (!reason.empty()) {
    FRESHET_LOG(Warning) << "event=decoding_with_aten reason="
                         << LogQuoted(StrCat("the CUDA kernels do not support ", reason));
    return nullptr;
  }
  const int64_t rows = RoundUpRows(std::clamp<int64_t>(max_sequences, 1, kMostRows));
  return std::unique_ptr<CudaDecoder>(new CudaDecoder(model, bf16, rows, cache, *kernels));
}

CudaDecoder::CudaDecoder(const Transformer& model, bool bf16, int64_t max_rows, AtenKvCache& cache,
                         const CudaKernels& kernels)
    : model_(model), bf16_(bf16), max_rows_(max_rows), cache_(cache), kernels_(kernels) {
  const ModelConfig& config = model.config();
  const at::TensorOptions on_gpu = at::TensorOptions(cache.data().device());
  const auto numbers = [&](int64_t width) {
    return at::empty({max_rows, width}, on_gpu.dtype(bf16 ? at::kBFloat16 : at::kFloat));
  };
  const auto floats = [&](int64_t width) {
    return at::empty({max_rows, width}, on_gpu.dtype(at::kFloat));
  };
  const int64_t heads = config.num_attention_heads;
  const int64_t kv_heads = config.num_key_value_heads;
  const int64_t dim = config.head_dim;
  const int64_t table = KvBlocks(config.max_position_embeddings);
  const int64_t inputs = 1 + max_rows * (kNumbersPerRow + table);
  staged_ = at::empty({inputs}, at::TensorOptions().dtype(at::kInt).pinned_memory(true));
  inputs_ = at::empty({inputs}, on_gpu.dtype(at::kInt));
  x_ = floats(config.hidden_size);
  normed_ = numbers(config.hidden_size);
  qkv_ = numbers((heads + 2 * kv_heads) * dim);
  q_ = numbers(heads * dim);
  mixed_ = numbers(heads * dim);
  product_ = numbers(config.hidden_size);
  gate_up_ = numbers(2 * config.intermediate_size);
  inner_ = numbers(config.intermediate_size);
  logits_ = numbers(config.vocab_size);
  wide_logits_ = bf16 ? floats(config.vocab_size) : logits_;
  int64_t parts = 0;
  for (int64_t rows = 1; rows <= max_rows; ++rows) {
    parts = std::max(parts, rows * Splits(rows, kv_heads));
  }
  scratch_ = at::empty({parts * heads * (dim + 2)}, on_gpu.dtype(at::kFloat));
}

CudaDecoder::~CudaDecoder() {
  for (const auto& [key, recording] : recordings_) {
    if (recording.graph != nullptr) kernels_.graph_destroy(recording.graph);
  }
}

bool CudaDecoder::Accepts(const EngineBatch& batch) const {
  if (batch.size() > max_rows_) return false;
  for (size_t i = 1; i < batch.queries.size(); ++i) {
    if (batch.queries[i].blocks == batch.queries[i - 1].blocks) return false;
  }
  return true;
}

void CudaDecoder::Upload(const EngineBatch& batch, int64_t rows, void* stream) {
  const int64_t used = batch.size();
  int64_t longest = 1;
  for (const PagedQuery& query : batch.queries) {
    longest = std::max(longest, KvBlocks(query.num_keys));
  }
  auto* to = staged_.mutable_data_ptr<int32_t>();
  *to++ = static_cast<int32_t>(longest);
  const auto column = [&](const auto& number) {
    for (int64_t i = 0; i < rows; ++i) {
      *to++ = i < used ? static_cast<int32_t>(number(static_cast<size_t>(i))) : 0;
    }
  };
  column([&](size_t i) { return batch.token_ids[i]; });
  column([&](size_t i) { return batch.positions[i]; });
  column([&](size_t i) { return batch.slots[i].first * kKvBlockTokens + batch.slots[i].second; });
  column([&](size_t i) { return batch.queries[i].num_keys; });
  for (const PagedQuery& query : batch.queries) {
    const int64_t blocks = KvBlocks(query.num_keys);
    std::copy(query.blocks, query.blocks + blocks, to);
    to += longest;
  }
  const auto* from = staged_.const_data_ptr<int32_t>();
  kernels_.Check(kernels_.upload(inputs_.mutable_data_ptr(), from,
                                 (to - from) * static_cast<int64_t>(sizeof(int32_t)), stream),
                 "upload of a batch");
}

void CudaDecoder::Enqueue(const TransformerWeights& weights, int64_t rows, void* stream) {
  const ModelConfig& config = model_.config();
  freshet_decode_shape shape = {};
  shape.rows = rows;
  shape.hidden = config.hidden_size;
  shape.heads = config.num_attention_heads;
  shape.kv_heads = config.num_key_value_heads;
  shape.dim = config.head_dim;
  shape.block_tokens = kKvBlockTokens;
  shape.splits = Splits(rows, config.num_key_value_heads);
  shape.epsilon = static_cast<float>(config.rms_norm_eps);
  shape.bf16 = bf16_ ? 1 : 0;
  const auto* inputs = inputs_.const_data_ptr<int32_t>();
  auto* x = x_.mutable_data_ptr<float>();
  const auto multiply = [rows](const at::Tensor& in, const at::Tensor& matrix, at::Tensor& out) {
    at::Tensor to = out.narrow(0, 0, rows);
    at::mm_out(to, in.narrow(0, 0, rows), matrix.t());
  };
  // Adds `delta`, which may be undefined, to x.
  const auto normalize = [&](const at::Tensor& delta, const at::Tensor& weight) {
    kernels_.Check(kernels_.rms_norm(x, delta.defined() ? delta.const_data_ptr() : nullptr,
                                     FloatsOf(weight), normed_.mutable_data_ptr(), nullptr, rows,
                                     shape.hidden, shape.epsilon, shape.bf16, stream),
                   "RMSNorm");
  };
  kernels_.Check(
      kernels_.decode_embed(&shape, inputs, weights.embed_VH.const_data_ptr(), x, stream),
      "embedding");
  at::Tensor delta;
  for (size_t l = 0; l < weights.layers.size(); ++l) {
    const auto index = static_cast<int64_t>(l);
    const TransformerWeights::Layer& layer = weights.layers[l];
    shape.window = config.Window(index);
    void* const keys = cache_.data()[0][index].mutable_data_ptr();
    void* const values = cache_.data()[1][index].mutable_data_ptr();
    normalize(delta, layer.input_norm_H);
    multiply(normed_, layer.qkv, qkv_);
    kernels_.Check(kernels_.decode_rope(
                       &shape, inputs, qkv_.const_data_ptr(), FloatsOf(layer.qkv_bias),
                       FloatsOf(layer.q_norm_D), FloatsOf(layer.k_norm_D), FloatsOf(model_.cos()),
                       FloatsOf(model_.sin()), q_.mutable_data_ptr(), keys, values, stream),
                   "rotary embedding");
    kernels_.Check(kernels_.decode_attention(&shape, inputs, q_.const_data_ptr(), keys, values,
                                             scratch_.mutable_data_ptr<float>(),
                                             mixed_.mutable_data_ptr(), stream),
                   "attention");
    multiply(mixed_, layer.o, product_);
    normalize(product_, layer.post_norm_H);
    const TransformerWeights::Mlp& mlp = layer.mlps.front();
    multiply(normed_, mlp.gate_up, gate_up_);
    kernels_.Check(kernels_.swiglu(gate_up_.const_data_ptr(), inner_.mutable_data_ptr(), rows,
                                   config.intermediate_size, shape.bf16, stream),
                   "SwiGLU");
    multiply(inner_, mlp.down, product_);
    delta = product_;
  }
  normalize(delta, weights.norm_H);
  multiply(normed_, weights.lm_head_VH, logits_);
  if (bf16_) wide_logits_.narrow(0, 0, rows).copy_(logits_.narrow(0, 0, rows));
}

void CudaDecoder::Record(Recording& recording, const TransformerWeights& weights, int64_t rows,
                         void* stream) {
  std::string error;
  const int begun = kernels_.graph_begin(stream);
  if (begun != 0) {
    error = kernels_.error_text(begun);
  } else {
    try {
      Enqueue(weights, rows, stream);
    } catch (const std::exception& thrown) {
      error = std::string(thrown.what()).substr(0, 300);
    }
    const int ended = kernels_.graph_end(stream, &recording.graph);
    if (error.empty() && ended != 0) error = kernels_.error_text(ended);
  }
  if (error.empty()) return;
  // It may lack operations.
  if (recording.graph != nullptr) kernels_.graph_destroy(std::exchange(recording.graph, nullptr));
  recording.failed = true;
  FRESHET_LOG(Warning) << "event=cuda_graph_failed rows=" << rows << " reason=" << LogQuoted(error);
}

at::Tensor CudaDecoder::Run(Lane lane, const TransformerWeights& weights,
                            const EngineBatch& batch) {
  const int64_t rows = std::min(RoundUpRows(batch.size()), max_rows_);
  void* const stream = CurrentCudaStream(inputs_.device());
  Upload(batch, rows, stream);
  Recording& recording = recordings_[{static_cast<int>(lane), rows}];
  if (recording.graph == nullptr && recording.warmed_up && !recording.failed) {
    Record(recording, weights, rows, stream);
  }
  if (recording.graph != nullptr) {
    kernels_.Check(kernels_.graph_launch(recording.graph, stream), "launch of a graph");
  } else {
    Enqueue(weights, rows, stream);
    recording.warmed_up = true;
  }
  return wide_logits_.narrow(0, 0, batch.size());
}

}  // namespace freshet
