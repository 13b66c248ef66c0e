#include "weights/weight_subscriber.h"

#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

// `Named` is WeightManifest or CommitReceipt.
template <typename Named>
bool Holds(const WeightSnapshot& held, const Named& version) {
  return held.manifest.policy == version.policy &&
         held.manifest.content_hash == version.content_hash;
}

}  // namespace

absl::StatusOr<WeightSubscriber::Admission> WeightSubscriber::AdmitLocked(
    const WeightManifest& manifest) {
  if (manifest.epoch < newest_epoch_) {
    return FailedPrecondition("version ", manifest.policy.version, " comes from trainer epoch ",
                              manifest.epoch, ", fenced by epoch ", newest_epoch_);
  }
  if (active_.has_value() && source_ != Source::kPeer) {
    const WeightManifest& active = active_->snapshot.manifest;
    if (manifest.policy < active.policy ||
        (manifest.policy == active.policy && manifest.content_hash != active.content_hash &&
         source_ == Source::kTrainer)) {
      return FailedPrecondition("version ", manifest.policy.version, " of lineage ",
                                manifest.policy.lineage, " is not newer than the active version ",
                                active.policy.version, " of lineage ", active.policy.lineage);
    }
  }
  const bool active = active_.has_value() && Holds(active_->snapshot, manifest);
  const bool prepared = prepared_.has_value() && Holds(*prepared_, manifest);
  return active || prepared ? Admission::kHeld : Admission::kBring;
}

absl::StatusOr<WeightSubscriber::Admission> WeightSubscriber::Admit(
    const WeightManifest& manifest) {
  MutexLock lock(mu_);
  return AdmitLocked(manifest);
}

absl::Status WeightSubscriber::Prepare(const WeightManifest& manifest, WeightBytes bytes) {
  if (bytes == nullptr) {
    return DataLoss("weights of version ", manifest.policy.version, ": no bytes");
  }
  FRESHET_RETURN_IF_ERROR(VerifyBuckets(manifest, *bytes));
  return PrepareVerified(manifest, std::move(bytes));
}

absl::Status WeightSubscriber::PrepareVerified(const WeightManifest& manifest, WeightBytes bytes) {
  MutexLock lock(mu_);
  FRESHET_ASSIGN_OR_RETURN(const Admission admission, AdmitLocked(manifest));
  if (admission == Admission::kBring) prepared_ = WeightSnapshot{manifest, std::move(bytes)};
  return absl::OkStatus();
}

absl::Status WeightSubscriber::Activate(const CommitReceipt& receipt) {
  {
    MutexLock lock(mu_);
    if (receipt.epoch < newest_epoch_) {
      return FailedPrecondition("receipt of trainer epoch ", receipt.epoch, ", fenced by epoch ",
                                newest_epoch_);
    }
    newest_epoch_ = receipt.epoch;
    if (active_.has_value() && Holds(active_->snapshot, receipt)) {
      // Engines that join later receive the newest trainer's epoch.
      active_->snapshot.manifest.epoch = receipt.epoch;
      active_->receipt = receipt;
      source_ = Source::kTrainer;
      return absl::OkStatus();
    }
    if (!prepared_.has_value() || !Holds(*prepared_, receipt)) {
      return FailedPrecondition("no prepared version matches the receipt of version ",
                                receipt.policy.version, " with content hash ",
                                receipt.content_hash);
    }
    prepared_->manifest.epoch = receipt.epoch;
    // The active version may have arrived after the prepared one and be newer.
    FRESHET_RETURN_IF_ERROR(AdmitLocked(prepared_->manifest).status());
    SetActive({*std::exchange(prepared_, std::nullopt), receipt}, Source::kTrainer);
  }
  if (on_activated_) on_activated_();
  return absl::OkStatus();
}

absl::Status WeightSubscriber::TakeFromPeer(CommittedWeights weights) {
  if (!Holds(weights.snapshot, weights.receipt)) {
    return FailedPrecondition("the receipt of version ", weights.receipt.policy.version,
                              " with content hash ", weights.receipt.content_hash,
                              " is not that of the weights");
  }
  {
    MutexLock lock(mu_);
    FRESHET_RETURN_IF_ERROR(AdmitLocked(weights.snapshot.manifest).status());
    if (active_.has_value() && Holds(active_->snapshot, weights.receipt)) return absl::OkStatus();
    // A late receipt must not activate a version older than this one.
    if (prepared_.has_value() && !(weights.snapshot.manifest.policy < prepared_->manifest.policy)) {
      prepared_.reset();
    }
    SetActive(std::move(weights), Source::kPeer);
  }
  if (on_activated_) on_activated_();
  return absl::OkStatus();
}

void WeightSubscriber::OnCommitted(const PolicyVersion& committed) {
  MutexLock lock(mu_);
  if (!active_.has_value() || committed < active_->snapshot.manifest.policy) return;
  if (source_ == Source::kPeer) source_ = Source::kCommitted;
}

void WeightSubscriber::SetActive(CommittedWeights weights, Source source) {
  active_ = std::move(weights);
  source_ = source;
  ready_ = true;
  Keep();
}

std::optional<WeightSnapshot> WeightSubscriber::Take() {
  MutexLock lock(mu_);
  if (!std::exchange(ready_, false)) return std::nullopt;
  return active_->snapshot;
}

std::optional<CommittedWeights> WeightSubscriber::Committed() const {
  MutexLock lock(mu_);
  return active_;
}

void WeightSubscriber::KeepEvery(int64_t every) {
  MutexLock lock(mu_);
  keep_every_ = every;
  kept_.reset();
  Keep();
}

void WeightSubscriber::Keep() {
  if (keep_every_ <= 0 || !active_.has_value()) return;
  if (active_->snapshot.manifest.policy.version % keep_every_ == 0) kept_ = active_->snapshot;
}

void WeightSubscriber::Hold(std::optional<WeightSnapshot> snapshot) {
  MutexLock lock(mu_);
  held_ = std::move(snapshot);
}

std::optional<WeightSnapshot> WeightSubscriber::AtLeast(PolicyVersion wanted) const {
  MutexLock lock(mu_);
  for (const std::optional<WeightSnapshot>& kept : {kept_, held_}) {
    if (kept.has_value() && kept->manifest.policy == wanted) return kept;
  }
  if (!active_.has_value() || active_->snapshot.manifest.policy < wanted) return std::nullopt;
  return active_->snapshot;
}

}  // namespace freshet
