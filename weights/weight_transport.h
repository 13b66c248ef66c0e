#ifndef FRESHET_WEIGHTS_WEIGHT_TRANSPORT_H_
#define FRESHET_WEIGHTS_WEIGHT_TRANSPORT_H_

#include <cstdint>

#include "weights/manifest.h"

namespace freshet {

// Carries versions from a trainer to all engines. Called by one publisher thread at a time.
class WeightTransport {
 public:
  virtual ~WeightTransport() = default;

  // Transfers a committed version to every engine's inactive buffer. The receipt must be that of
  // the version. An engine that holds the verified bytes gets the receipt, and swaps at its next
  // token boundary. Engines do not wait for each other; those that refuse or are unreachable are
  // skipped. Returns the number of engines that hold the version.
  virtual int64_t Publish(const CommittedWeights& version) = 0;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_TRANSPORT_H_
