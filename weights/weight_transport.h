#ifndef FRESHET_WEIGHTS_WEIGHT_TRANSPORT_H_
#define FRESHET_WEIGHTS_WEIGHT_TRANSPORT_H_

#include "base/policy_version.h"
#include "weights/manifest.h"

namespace freshet {

// Carries versions from a trainer to all engines in two phases. Engines do not wait for each other.
// Called by one publisher thread at a time.
class WeightTransport {
 public:
  virtual ~WeightTransport() = default;

  // Transfers the bytes to every engine's inactive buffer. Engines that refuse or are unreachable
  // are skipped and do not fail the call. Returns the number of engines that hold the verified
  // version.
  virtual int64_t Prepare(const WeightManifest& manifest, WeightBytes bytes) = 0;

  // Tells every engine that the version is committed. Engines swap at the next token boundary.
  virtual void Activate(const CommitReceipt& receipt) = 0;
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_TRANSPORT_H_
