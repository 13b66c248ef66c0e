#ifndef FRESHET_WEIGHTS_WEIGHT_TRANSPORT_H_
#define FRESHET_WEIGHTS_WEIGHT_TRANSPORT_H_

#include "absl/status/status.h"
#include "base/policy_version.h"
#include "weights/manifest.h"

namespace freshet {

// Carries versions from a trainer to all engines, in two phases. No engine waits for another.
// Called by one publisher thread at a time.
class WeightTransport {
 public:
  virtual ~WeightTransport() = default;

  // Lands the bytes in every engine's inactive buffer. An engine that refuses or cannot be reached
  // is left out of this version and does not fail the call.
  // Returns the number of engines that hold the version verified.
  virtual int64_t Prepare(const WeightManifest& manifest, WeightBytes bytes) = 0;

  // Tells every engine that the version was committed. Engines swap at their next token boundary.
  virtual void Activate(const CommitReceipt& receipt) = 0;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_TRANSPORT_H_
