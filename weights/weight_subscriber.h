#ifndef FRESHET_WEIGHTS_WEIGHT_SUBSCRIBER_H_
#define FRESHET_WEIGHTS_WEIGHT_SUBSCRIBER_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/policy_version.h"
#include "weights/manifest.h"

namespace freshet {

// One engine's end of the weight plane. Holds at most one prepared version in addition to the
// active one, and releases it to the engine only with its commit receipt. So a torn, unverified or
// uncommitted version never generates a token, and a fenced trainer cannot publish. Both phases are
// idempotent.
//
// Only the trainer calls Activate, and only Activate raises the epoch and version used for fencing.
// Other engines call Prepare and answer pulls on the trainer's behalf; the epochs and versions that
// they claim fence nobody, so no engine can lock the trainer out. However, a version of theirs that
// the store has committed is never replaced by an older one.
// Thread-safe.
class WeightSubscriber {
 public:
  enum class Admission {
    kBring,  // its bytes are needed
    kHeld,   // already prepared or active
  };

  // `on_activated` is called, without the lock, each time a version becomes available to Take().
  explicit WeightSubscriber(std::function<void()> on_activated = {})
      : on_activated_(std::move(on_activated)) {}

  // Whether the bytes of `manifest` are needed. No side effects. FAILED_PRECONDITION: as for
  // Prepare.
  absl::StatusOr<Admission> Admit(const WeightManifest& manifest) ABSL_LOCKS_EXCLUDED(mu_);

  // Phase one: a version's bytes have arrived. Replaces an earlier prepared version.
  // Returns:
  //   DATA_LOSS: a bucket differs from the manifest; nothing is kept.
  //   FAILED_PRECONDITION: the epoch is older than that of a receipt; the version is older than the
  //     last one activated by the trainer, or has other bytes; or it is older than a committed
  //     version from a peer (OnCommitted).
  absl::Status Prepare(const WeightManifest& manifest, WeightBytes bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // Prepare for bytes that were already verified against the manifest.
  absl::Status PrepareVerified(const WeightManifest& manifest, WeightBytes bytes)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Phase two, called by the trainer. Fences trainers of older epochs. FAILED_PRECONDITION: the
  // receipt's epoch is fenced, or no prepared or active version matches its version and content
  // hash.
  absl::Status Activate(const CommitReceipt& receipt) ABSL_LOCKS_EXCLUDED(mu_);

  // Activates a verified version that a peer reports as committed, for an engine that joins late.
  // Until OnCommitted confirms it, any version that the trainer activates replaces it. Drops a
  // prepared version that is not newer. FAILED_PRECONDITION: as for Prepare, or the receipt is for
  // another version.
  absl::Status TakeFromPeer(CommittedWeights weights) ABSL_LOCKS_EXCLUDED(mu_);

  // The store has committed all versions up to `committed`. If the active version came from a peer
  // and is among them, no older version replaces it from now on.
  void OnCommitted(const PolicyVersion& committed) ABSL_LOCKS_EXCLUDED(mu_);

  // The newest activated version that was not taken yet. The engine calls it between decode steps.
  std::optional<WeightSnapshot> Take() ABSL_LOCKS_EXCLUDED(mu_);

  // The newest activated version with its receipt, for engines that join late.
  std::optional<CommittedWeights> Committed() const ABSL_LOCKS_EXCLUDED(mu_);

  // Also keeps the newest activated version that is a multiple of `every`, for evaluations
  // requested after training has moved on. 0: none.
  void KeepEvery(int64_t every) ABSL_LOCKS_EXCLUDED(mu_);
  // Also keeps `snapshot` until the next call, for further evaluations of its version.
  void Hold(std::optional<WeightSnapshot> snapshot) ABSL_LOCKS_EXCLUDED(mu_);
  // Version `wanted` if it is active, kept or held; otherwise the newest version if it is newer.
  std::optional<WeightSnapshot> AtLeast(PolicyVersion wanted) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Who activated the active version.
  enum class Source {
    kPeer,
    kCommitted,  // a peer; committed by the store
    kTrainer,
  };

  absl::StatusOr<Admission> AdmitLocked(const WeightManifest& manifest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetActive(CommittedWeights weights, Source source) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Keep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::function<void()> on_activated_;
  mutable Mutex mu_;
  int64_t newest_epoch_ ABSL_GUARDED_BY(mu_) = 0;  // from receipts
  std::optional<WeightSnapshot> prepared_ ABSL_GUARDED_BY(mu_);
  std::optional<CommittedWeights> active_ ABSL_GUARDED_BY(mu_);
  Source source_ ABSL_GUARDED_BY(mu_) = Source::kPeer;  // of active_
  std::optional<WeightSnapshot> kept_ ABSL_GUARDED_BY(mu_);
  std::optional<WeightSnapshot> held_ ABSL_GUARDED_BY(mu_);
  int64_t keep_every_ ABSL_GUARDED_BY(mu_) = 0;
  bool ready_ ABSL_GUARDED_BY(mu_) = false;  // active_ has not been taken yet
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_SUBSCRIBER_H_
