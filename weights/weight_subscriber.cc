#include "weights/weight_subscriber.h"

#include <algorithm>
#include <utility>

#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

bool Holds(const std::optional<WeightSnapshot>& held, const WeightManifest& manifest) {
  return held.has_value() && held->manifest.policy == manifest.policy &&
         held->manifest.content_hash == manifest.content_hash;
}

}  // namespace

absl::StatusOr<WeightSubscriber::Admission> WeightSubscriber::AdmitLocked(
    const WeightManifest& manifest) {
  if (manifest.epoch < newest_epoch_) {
    return FailedPrecondition("version ", manifest.policy.version, " comes from trainer epoch ",
                              manifest.epoch, ", fenced by epoch ", newest_epoch_);
  }
  if (active_.has_value()) {
    const WeightManifest& active = active_->snapshot.manifest;
    if (manifest.policy < active.policy ||
        (manifest.policy == active.policy && manifest.content_hash != active.content_hash)) {
      return FailedPrecondition("version ", manifest.policy.version, " of lineage ",
                                manifest.policy.lineage, " is not newer than the active version ",
                                active.policy.version, " of lineage ", active.policy.lineage);
    }
  }
  if (prepared_.has_value() && manifest.epoch == prepared_->manifest.epoch &&
      manifest.policy < prepared_->manifest.policy) {
    return FailedPrecondition("version ", manifest.policy.version, " of lineage ",
                              manifest.policy.lineage, " is older than the prepared version ",
                              prepared_->manifest.policy.version);
  }
  newest_epoch_ = manifest.epoch;
  if (active_.has_value() && manifest.policy == active_->snapshot.manifest.policy) {
    return Admission::kHeld;
  }
  if (Holds(prepared_, manifest)) {
    prepared_->manifest.epoch = manifest.epoch;
    return Admission::kHeld;
  }
  return Admission::kBring;
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
    const auto matches = [&receipt](const WeightManifest& manifest) {
      return manifest.policy == receipt.policy && manifest.content_hash == receipt.content_hash;
    };
    if (active_.has_value() && matches(active_->snapshot.manifest)) {
      // Who joins from here on learns of the newest trainer.
      active_->snapshot.manifest.epoch = receipt.epoch;
      active_->receipt = receipt;
      return absl::OkStatus();
    }
    if (!prepared_.has_value() || !matches(prepared_->manifest)) {
      return FailedPrecondition("no prepared version matches the receipt of version ",
                                receipt.policy.version, " with content hash ",
                                receipt.content_hash);
    }
    active_ = CommittedWeights{*std::exchange(prepared_, std::nullopt), receipt};
    ready_ = true;
    Keep();
  }
  if (on_activated_) on_activated_();
  return absl::OkStatus();
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

std::optional<WeightSnapshot> WeightSubscriber::AtLeast(PolicyVersion wanted) const {
  MutexLock lock(mu_);
  if (kept_.has_value() && kept_->manifest.policy == wanted) return kept_;
  if (!active_.has_value() || active_->snapshot.manifest.policy < wanted) return std::nullopt;
  return active_->snapshot;
}

}  // namespace freshet
