#ifndef FRESHET_ROLLOUT_ENGINE_ATEN_KV_CACHE_H_
#define FRESHET_ROLLOUT_ENGINE_ATEN_KV_CACHE_H_

#include <cstdint>
#include <optional>

#include "model/torch.h"
#include "rollout/engine/kv_block_pool.h"
#include "rollout/engine/kv_cache.h"

namespace freshet {

// Keys and values as tensors on one device. Slot s of block b has the index b * kKvBlockTokens + s.
class AtenKvCache final : public KvBlockPool {
 public:
  // Throws c10::Error, for example if the device has too little memory.
  // CopyPrefix puts its work into `stream`, or without one into the current one.
  AtenKvCache(const KvCacheShape& shape, int64_t num_blocks, at::Device device,
              std::optional<c10::Stream> stream = std::nullopt);

  void CopyPrefix(int32_t from, int32_t to, int64_t tokens) override;

  // Stores the keys and values of N tokens, rounded to the format. slots_N: int64, on the device.
  void Write(int64_t layer, const at::Tensor& slots_N, const at::Tensor& k_NKD,
             const at::Tensor& v_NKD);
  // [2 (keys, values), layers, slots, K, D], in the format.
  const at::Tensor& data() const { return data_; }
  // The keys or values of these slots, fp32 [slots, K, D].
  at::Tensor Keys(int64_t layer, const at::Tensor& slots) const;
  at::Tensor Values(int64_t layer, const at::Tensor& slots) const;

 private:
  const std::optional<c10::Stream> stream_;
  at::Tensor data_;  // a slot is undefined until written
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_ATEN_KV_CACHE_H_
