#include "rollout/engine/device_weights.h"

#include <optional>

#include "base/log.h"
#include "base/str_cat.h"
#include "model/tensor_digest.h"

namespace freshet {

absl::Status LoadDeviceCopy(const DeviceCopy& copy, const at::Tensor& flat) {
  if (!copy.owner_lives()) {
    return StatusOf(absl::StatusCode::kUnavailable, "the trainer of the copy has ended");
  }
  // from_blob requires a mutable pointer; nothing writes through it.
  void* const data = const_cast<void*>(copy.data);
  flat.copy_(at::from_blob(data, flat.sizes(), flat.options()));
  if (DigestOf(flat) == copy.digest) return absl::OkStatus();
  return DataLoss("the copy on the GPU has other bytes than the version");
}

void CopyWeights(const WeightArena& arena, const at::Tensor& host, const at::Tensor& flat) {
  const std::optional<DeviceCopy>& copy = arena.device_copy();
  if (copy.has_value() && copy->device == flat.device().index() &&
      host.scalar_type() == flat.scalar_type()) {
    const absl::Status loaded = LoadDeviceCopy(*copy, flat);
    if (loaded.ok()) return;
    FRESHET_LOG(Warning) << "event=no_gpu_copy reason=" << LogQuoted(Message(loaded));
  }
  flat.copy_(host);
}

}  // namespace freshet
