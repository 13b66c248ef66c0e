#ifndef FRESHET_ROLLOUT_ENGINE_ATEN_ATTENTION_H_
#define FRESHET_ROLLOUT_ENGINE_ATEN_ATTENTION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "model/torch.h"
#include "model/varlen_attention.h"
#include "rollout/engine/aten_kv_cache.h"
#include "rollout/engine/engine_batch.h"

namespace freshet {

// Attention of a batch over a paged cache with ATen, on the cache's device: on a GPU with
// VarlenAttention where that is possible; otherwise sequences with equally many queries and about
// as many keys are computed together. Used for all layers of one pass.
class AtenAttention {
 public:
  // `batch` must outlive it.
  AtenAttention(const EngineBatch& batch, const AtenKvCache& cache);

  // The cache's slot of each of the batch's tokens, int64 [N].
  const at::Tensor& slots() const { return slots_N_; }

  // Softmax attention, as PagedAttention. q_NAD: already rounded to bf16 if the cache is bf16; the
  // batch's keys and values are in the cache. Returns [N, A*D], in fp32 or the cache's format.
  at::Tensor Attend(int64_t layer, int64_t window, const at::Tensor& q_NAD);

 private:
  // B sequences with n queries each. Shorter sequences are padded to T keys.
  struct Part {
    int64_t sequences = 0;
    int64_t queries = 0;
    int64_t keys = 0;
    at::Tensor rows;      // of the batch, int64 [B*n]
    at::Tensor slots;     // of the keys, int64 [B*T]
    at::Tensor num_keys;  // of each query, int64 [B, n]
    // Which keys a query of a key head sees, bool [B, 1, query heads of it * n, T], by window.
    std::map<int64_t, at::Tensor> masks;
  };
  static const at::Tensor& Mask(Part& part, int64_t window, int64_t heads_per_kv_head);
  void MakeParts();

  const EngineBatch& batch_;
  const AtenKvCache& cache_;
  std::optional<VarlenAttention> varlen_;
  std::vector<Part> parts_;  // made when they are needed
  at::Tensor slots_N_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_ATEN_ATTENTION_H_
