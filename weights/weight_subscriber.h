#ifndef FRESHET_WEIGHTS_WEIGHT_SUBSCRIBER_H_
#define FRESHET_WEIGHTS_WEIGHT_SUBSCRIBER_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "datastore/trajectory_store.h"
#include "services/base/mutex.h"
#include "weights/manifest.h"

namespace freshet {

// One engine's end of the weight plane: holds at most one prepared version beside the active one,
// and releases it to the engine only with the receipt of its commit. So a torn, unverified or
// uncommitted version can never generate a token, and a fenced trainer publishes to nobody.
// Thread-safe.
class WeightSubscriber {
 public:
  // `on_activated` is called, without the lock, each time a version becomes ready to be taken.
  explicit WeightSubscriber(std::function<void()> on_activated = {})
      : on_activated_(std::move(on_activated)) {}

  // Phase one: bytes of a version have landed. Replaces a version prepared before.
  // Returns:
  //   DATA_LOSS: a bucket differs from the manifest; nothing is kept.
  //   FAILED_PRECONDITION: older trainer epoch than one seen, or a version not newer than the last
  //   activated one.
  absl::Status Prepare(const WeightManifest& manifest, WeightBytes bytes);

  // Phase two. FAILED_PRECONDITION when the receipt's epoch is fenced, or no version prepared
  // matches its version and content hash.
  absl::Status Activate(const CommitReceipt& receipt);

  // The newest activated version not taken yet. The engine calls it between two decode steps.
  std::optional<WeightSnapshot> Take();

 private:
  const std::function<void()> on_activated_;
  Mutex mu_;
  int64_t newest_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<PolicyVersion> activated_ ABSL_GUARDED_BY(mu_);
  std::optional<WeightSnapshot> prepared_ ABSL_GUARDED_BY(mu_);
  std::optional<WeightSnapshot> ready_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_SUBSCRIBER_H_
