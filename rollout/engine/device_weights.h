#ifndef FRESHET_ROLLOUT_ENGINE_DEVICE_WEIGHTS_H_
#define FRESHET_ROLLOUT_ENGINE_DEVICE_WEIGHTS_H_

#include "absl/status/status.h"
#include "model/torch.h"
#include "weights/weight_arena.h"

namespace freshet {

// Copies `copy` to `flat`, a contiguous tensor of the arena's size and number format on the copy's
// GPU, on the current stream, and compares the digest of what `flat` then has. So neither another
// process that writes to the copy nor the end of its owner can leave other weights unnoticed.
//   UNAVAILABLE: the copy's owner has ended; nothing was copied.
//   DATA_LOSS: `flat` has other bytes.
absl::Status LoadDeviceCopy(const DeviceCopy& copy, const at::Tensor& flat);

// Copies the arena, of which `host` is a view, to `flat`: from its copy on flat's device if it has
// one in flat's number format, and from `host` otherwise or if that fails, which is logged.
void CopyWeights(const WeightArena& arena, const at::Tensor& host, const at::Tensor& flat);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_DEVICE_WEIGHTS_H_
