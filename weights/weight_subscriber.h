#ifndef FRESHET_WEIGHTS_WEIGHT_SUBSCRIBER_H_
#define FRESHET_WEIGHTS_WEIGHT_SUBSCRIBER_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/trajectory_store.h"
#include "services/base/mutex.h"
#include "weights/manifest.h"

namespace freshet {

// One engine's end of the weight plane: holds at most one prepared version beside the active one,
// and releases it to the engine only with the receipt of its commit. So a torn, unverified or
// uncommitted version can never generate a token, and a fenced trainer publishes to nobody.
// Both phases may be repeated: a version that is held already is not taken a second time.
// Thread-safe.
class WeightSubscriber {
 public:
  enum class Admission {
    kBring,  // its bytes are wanted
    kHeld,   // prepared or active here already
  };

  // `on_activated` is called, without the lock, each time a version becomes ready to be taken.
  explicit WeightSubscriber(std::function<void()> on_activated = {})
      : on_activated_(std::move(on_activated)) {}

  // Whether the bytes of `manifest` are wanted. Fences trainers of older epochs.
  // FAILED_PRECONDITION: as for Prepare.
  absl::StatusOr<Admission> Admit(const WeightManifest& manifest) ABSL_LOCKS_EXCLUDED(mu_);

  // Phase one: bytes of a version have landed. Replaces a version prepared before.
  // Returns:
  //   DATA_LOSS: a bucket differs from the manifest; nothing is kept.
  //   FAILED_PRECONDITION: older trainer epoch than one seen, or a version older than the last
  //   activated one, or other bytes for that one, or older than what this trainer prepared last.
  absl::Status Prepare(const WeightManifest& manifest, WeightBytes bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // Prepare for bytes that were checked against the manifest while they landed.
  absl::Status PrepareVerified(const WeightManifest& manifest, WeightBytes bytes)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Phase two. FAILED_PRECONDITION when the receipt's epoch is fenced, or no version prepared or
  // active matches its version and content hash.
  absl::Status Activate(const CommitReceipt& receipt) ABSL_LOCKS_EXCLUDED(mu_);

  // The newest activated version not taken yet. The engine calls it between two decode steps.
  std::optional<WeightSnapshot> Take() ABSL_LOCKS_EXCLUDED(mu_);

  // The newest activated version with its receipt, for engines that join late.
  std::optional<CommittedWeights> Committed() const ABSL_LOCKS_EXCLUDED(mu_);

  // Keeps the newest activated version that is a multiple of `every` beside the active one: for an
  // evaluation, which is asked for when training has gone on. 0: none.
  void KeepEvery(int64_t every) ABSL_LOCKS_EXCLUDED(mu_);
  // Version `wanted`, when it is active or kept; otherwise the newest, if that is newer.
  std::optional<WeightSnapshot> AtLeast(PolicyVersion wanted) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::StatusOr<Admission> AdmitLocked(const WeightManifest& manifest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Keep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::function<void()> on_activated_;
  mutable Mutex mu_;
  int64_t newest_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<WeightSnapshot> prepared_ ABSL_GUARDED_BY(mu_);
  std::optional<CommittedWeights> active_ ABSL_GUARDED_BY(mu_);
  std::optional<WeightSnapshot> kept_ ABSL_GUARDED_BY(mu_);
  int64_t keep_every_ ABSL_GUARDED_BY(mu_) = 0;
  bool ready_ ABSL_GUARDED_BY(mu_) = false;  // active_ was not taken yet
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_SUBSCRIBER_H_
