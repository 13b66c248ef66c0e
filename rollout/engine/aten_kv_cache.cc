#include "rollout/engine/aten_kv_cache.h"

#include <c10/core/StreamGuard.h>

#include "model/kv_cache_size.h"

namespace freshet {

AtenKvCache::AtenKvCache(const KvCacheShape& shape, int64_t num_blocks, at::Device device,
                         std::optional<c10::Stream> stream)
    : KvBlockPool(num_blocks),
      stream_(stream),
      data_(at::empty(
          {2, shape.num_layers, num_blocks * kKvBlockTokens, shape.num_kv_heads, shape.head_dim},
          at::TensorOptions(device).dtype(shape.format == KvFormat::kFloat32 ? at::kFloat
                                                                             : at::kBFloat16))) {}

void AtenKvCache::CopyPrefix(int32_t from, int32_t to, int64_t tokens) {
  const c10::InferenceMode inference;
  const c10::OptionalStreamGuard on_stream(stream_);
  data_.narrow(2, to * kKvBlockTokens, tokens)
      .copy_(data_.narrow(2, from * kKvBlockTokens, tokens));
}

void AtenKvCache::Write(int64_t layer, const at::Tensor& slots_N, const at::Tensor& k_NKD,
                        const at::Tensor& v_NKD) {
  data_[0][layer].index_copy_(0, slots_N, k_NKD.to(data_.scalar_type()));
  data_[1][layer].index_copy_(0, slots_N, v_NKD.to(data_.scalar_type()));
}

at::Tensor AtenKvCache::Keys(int64_t layer, const at::Tensor& slots) const {
  return data_[0][layer].index_select(0, slots).to(at::kFloat);
}

at::Tensor AtenKvCache::Values(int64_t layer, const at::Tensor& slots) const {
  return data_[1][layer].index_select(0, slots).to(at::kFloat);
}

}  // namespace freshet
