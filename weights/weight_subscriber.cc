#include "weights/weight_subscriber.h"

#include <algorithm>
#include <utility>

#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {

absl::Status WeightSubscriber::Prepare(const WeightManifest& manifest, WeightBytes bytes) {
  if (bytes == nullptr) {
    return DataLoss("weights of version ", manifest.policy.version, ": no bytes");
  }
  FRESHET_RETURN_IF_ERROR(VerifyBuckets(manifest, *bytes));
  MutexLock lock(mu_);
  if (manifest.epoch < newest_epoch_) {
    return FailedPrecondition("version ", manifest.policy.version, " comes from trainer epoch ",
                              manifest.epoch, ", fenced by epoch ", newest_epoch_);
  }
  if (activated_.has_value() && manifest.policy <= *activated_) {
    return FailedPrecondition("version ", manifest.policy.version, " of lineage ",
                              manifest.policy.lineage, " is not newer than the active version ",
                              activated_->version, " of lineage ", activated_->lineage);
  }
  newest_epoch_ = manifest.epoch;
  prepared_ = WeightSnapshot{manifest, std::move(bytes)};
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
    if (!prepared_.has_value() || prepared_->manifest.policy != receipt.policy ||
        prepared_->manifest.content_hash != receipt.content_hash) {
      return FailedPrecondition("no prepared version matches the receipt of version ",
                                receipt.policy.version, " with content hash ",
                                receipt.content_hash);
    }
    activated_ = receipt.policy;
    ready_ = std::exchange(prepared_, std::nullopt);
  }
  if (on_activated_) on_activated_();
  return absl::OkStatus();
}

std::optional<WeightSnapshot> WeightSubscriber::Take() {
  MutexLock lock(mu_);
  return std::exchange(ready_, std::nullopt);
}

}  // namespace freshet
