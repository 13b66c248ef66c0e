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

// One engine's end of the weight plane: holds at most one prepared version beside the active one,
// and releases it to the engine only with the receipt of its commit. So a torn, unverified or
// uncommitted version can never generate a token, and a fenced trainer publishes to nobody.
// Both phases may be repeated: a version that is held already is not taken a second time.
//
// Only the trainer calls Activate, and only Activate raises the epoch and the version that fence.
// Other engines call Prepare, and answer a pull, on behalf of the trainer: the epochs and versions
// that they claim fence nobody, so that no engine can shut the trainer out. But a version of theirs
// that the store has committed is never replaced by an older one.
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

  // Whether the bytes of `manifest` are wanted. Changes nothing.
  // FAILED_PRECONDITION: as for Prepare.
  absl::StatusOr<Admission> Admit(const WeightManifest& manifest) ABSL_LOCKS_EXCLUDED(mu_);

  // Phase one: bytes of a version have landed. Replaces a version prepared before.
  // Returns:
  //   DATA_LOSS: a bucket differs from the manifest; nothing is kept.
  //   FAILED_PRECONDITION: older trainer epoch than that of a receipt, or a version older than the
  //   last one that the trainer activated, or other bytes for that one; or older than one of a
  //   peer that is committed (OnCommitted).
  absl::Status Prepare(const WeightManifest& manifest, WeightBytes bytes) ABSL_LOCKS_EXCLUDED(mu_);

  // Prepare for bytes that were checked against the manifest while they landed.
  absl::Status PrepareVerified(const WeightManifest& manifest, WeightBytes bytes)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Phase two, by the trainer. Fences trainers of older epochs. FAILED_PRECONDITION when the
  // receipt's epoch is fenced, or no version prepared or active matches its version and content
  // hash.
  absl::Status Activate(const CommitReceipt& receipt) ABSL_LOCKS_EXCLUDED(mu_);

  // Activates a verified version that a peer reports as committed: for an engine that joins late.
  // Any version that the trainer activates replaces it, until OnCommitted confirms it. Drops a
  // prepared version that is not newer. FAILED_PRECONDITION: as for Prepare, or the receipt is
  // another version's.
  absl::Status TakeFromPeer(CommittedWeights weights) ABSL_LOCKS_EXCLUDED(mu_);

  // The store has committed all versions up to `committed`. If the active version came from a peer
  // and is among them, no older one replaces it from then on.
  void OnCommitted(const PolicyVersion& committed) ABSL_LOCKS_EXCLUDED(mu_);

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
  // By whose word the active version is active.
  enum class Source {
    kPeer,
    kCommitted,  // a peer's, of a version that the store has committed
    kTrainer,
  };

  absl::StatusOr<Admission> AdmitLocked(const WeightManifest& manifest)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetActive(CommittedWeights weights, Source source) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Keep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::function<void()> on_activated_;
  mutable Mutex mu_;
  int64_t newest_epoch_ ABSL_GUARDED_BY(mu_) = 0;  // of the receipts
  std::optional<WeightSnapshot> prepared_ ABSL_GUARDED_BY(mu_);
  std::optional<CommittedWeights> active_ ABSL_GUARDED_BY(mu_);
  Source source_ ABSL_GUARDED_BY(mu_) = Source::kPeer;  // of active_
  std::optional<WeightSnapshot> kept_ ABSL_GUARDED_BY(mu_);
  int64_t keep_every_ ABSL_GUARDED_BY(mu_) = 0;
  bool ready_ ABSL_GUARDED_BY(mu_) = false;  // active_ was not taken yet
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_SUBSCRIBER_H_
