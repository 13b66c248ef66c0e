#ifndef FRESHET_WEIGHTS_TRANSFER_TIME_H_
#define FRESHET_WEIGHTS_TRANSFER_TIME_H_

#include <cstdint>

#include "absl/time/time.h"

namespace freshet {

// The largest weight_sync.timeout_ms.
inline constexpr absl::Duration kMaxTransferTime = absl::Hours(1);

// Time limit for moving `bytes` between processes: 10 s for calls and waiting, and the bytes at
// 50 MB/s, half of what a network of 1 Gbit/s carries.
inline absl::Duration TransferTime(int64_t bytes) {
  constexpr double kBytesPerSecond = 50e6;
  return absl::Seconds(10) + absl::Seconds(static_cast<double>(bytes) / kBytesPerSecond);
}

// Time limit for one of several steps of such a transfer: `silence` and the step's bytes at that
// speed.
inline absl::Duration StepTime(absl::Duration silence, int64_t bytes) {
  return silence + TransferTime(bytes) - TransferTime(0);
}

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_TRANSFER_TIME_H_
