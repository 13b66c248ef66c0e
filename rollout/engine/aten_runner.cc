#include "rollout/engine/aten_runner.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <vector>

#include "rollout/engine/aten_attention.h"
#include "rollout/engine/device_weights.h"

namespace freshet {
namespace {

std::optional<c10::Stream> MakeStream(at::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

// Whether the batch wants the logits of all its rows, in their order.
bool WantsAllRows(const EngineBatch& batch) {
  if (std::ssize(batch.wants) != batch.size()) return false;
  for (int64_t i = 0; i < batch.size(); ++i) {
    if (batch.wants[static_cast<size_t>(i)].row != i) return false;
  }
  return true;
}

// Copies tensor by tensor, so that the addresses of `to` stay.
void Assign(TransformerWeights& to, const TransformerWeights& from) {
  std::vector<at::Tensor> sources;
  TransformerWeights handles = from;
  ForEachTensor(handles,
                [&](const std::string&, const at::Tensor& tensor) { sources.push_back(tensor); });
  size_t next = 0;
  ForEachTensor(to, [&](const std::string&, at::Tensor& tensor) {
    const at::Tensor& source = sources[next++];
    if (tensor.data_ptr() != source.data_ptr()) tensor.copy_(source);
  });
}

}  // namespace

AtenRunner::AtenRunner(const ModelConfig& config, bool bf16, at::Device device,
                       int64_t cache_blocks, int64_t max_sequences, int threads)
    : pool_(threads),
      bf16_(bf16),
      device_(device),
      stream_(MakeStream(device)),
      layout_(MakeParameterLayout(config)),
      transformer_(config, device),
      cache_({config.num_hidden_layers, config.num_key_value_heads, config.head_dim,
              bf16 ? KvFormat::kBfloat16 : KvFormat::kFloat32},
             cache_blocks, device, stream_) {
  const c10::OptionalStreamGuard on_stream(stream_);
  // A scalar head only takes prompts.
  if (!config.scalar_head) {
    decoder_ = CudaDecoder::Create(transformer_, bf16, max_sequences, cache_);
  }
}

void AtenRunner::LoadWeights(Lane lane, const WeightBytes& arena, Dtype dtype) {
  const c10::InferenceMode inference;
  const c10::OptionalStreamGuard on_stream(stream_);
  auto& [flat, weights] = lanes_[static_cast<int>(lane)];
  // from_blob requires a mutable pointer; nothing writes through it.
  void* data = const_cast<std::byte*>(arena->data());
  // On the CPU the tensor shares the arena's immutable bytes and keeps them alive.
  const at::Tensor host = at::from_blob(
      data, {layout_.num_elements}, [arena](void*) {},
      dtype == Dtype::kBf16 ? at::kBFloat16 : at::kFloat);
  const at::ScalarType type = bf16_ ? at::kBFloat16 : at::kFloat;
  if (device_.is_cpu()) {
    weights = {};  // there may be no room for both
    flat.reset();
    flat = host.to(type);
  } else {
    if (!flat.defined())
      flat = at::empty({layout_.num_elements}, at::TensorOptions(device_).dtype(type));
    CopyWeights(*arena, host, flat);
  }
  const TransformerWeights views = ViewWeights(layout_, flat);
  if (weights.layers.empty()) {
    weights = bf16_ ? WidenVectors(views) : views;
  } else {
    Assign(weights, views);
  }
  if (stream_.has_value()) stream_->synchronize();  // the arena is free then
}

at::Tensor AtenRunner::Hidden(const TransformerWeights& weights, const EngineBatch& batch) {
  const auto on_device = [&](const std::vector<int64_t>& numbers) {
    return at::tensor(numbers, at::kLong).to(device_);
  };
  AtenAttention attention(batch, cache_);
  const at::Tensor hidden = transformer_.Forward(
      weights, on_device(batch.token_ids), on_device(batch.positions),
      [&](int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
        cache_.Write(layer, attention.slots(), k, v);
        return attention.Attend(layer, transformer_.config().Window(layer), q);
      });
  std::vector<int64_t> rows;
  rows.reserve(batch.wants.size());
  for (const EngineBatch::Want& want : batch.wants) rows.push_back(want.row);
  return hidden.index_select(0, on_device(rows));
}

const float* AtenRunner::ToHost(const at::Tensor& logits) {
  if (device_.is_cpu()) {
    logits_ = logits.contiguous();
    return logits_.const_data_ptr<float>();
  }
  if (!logits_.defined() || logits_.size(0) < logits.size(0)) {
    logits_ = at::empty(logits.sizes(), logits.options().device(at::kCPU).pinned_memory(true));
  }
  logits_.narrow(0, 0, logits.size(0)).copy_(logits, /*non_blocking=*/true);
  stream_->synchronize();
  return logits_.const_data_ptr<float>();
}

const float* AtenRunner::Run(Lane lane, const EngineBatch& batch) {
  const c10::InferenceMode inference;
  const c10::OptionalStreamGuard on_stream(stream_);
  const TransformerWeights& weights = lanes_[static_cast<int>(lane)].weights;
  if (decoder_ != nullptr && WantsAllRows(batch) && decoder_->Accepts(batch)) {
    return ToHost(decoder_->Run(lane, weights, batch));
  }
  const at::Tensor hidden = Hidden(weights, batch);
  return batch.wants.empty() ? nullptr : ToHost(Transformer::Logits(weights, hidden));
}

}  // namespace freshet
