#include "trainer/ranks/stored_samples.h"

#include <utility>

#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

StoredSamples::StoredSamples(StoreOpener open, std::string job, const Clock& clock)
    : open_(std::move(open)), job_(std::move(job)), clock_(clock) {}

absl::StatusOr<std::vector<SampleView>> StoredSamples::Read(int64_t step,
                                                            const std::vector<SampleKey>& keys) {
  if (step != step_) samples_.clear();
  step_ = step;
  std::vector<SampleKey> missing;
  for (const SampleKey& key : keys) {
    if (!samples_.contains(key)) missing.push_back(key);
  }
  if (!missing.empty()) {
    if (clock_.Now() < tries_again_) return last_error_;
    const absl::Status fetched = Fetch(missing);
    if (absl::IsUnavailable(fetched) || absl::IsPermissionDenied(fetched)) {
      last_error_ = fetched;
      tries_again_ = clock_.Now() + kStoreRetryDelay;
    }
    FRESHET_RETURN_IF_ERROR(fetched);
  }
  std::vector<SampleView> views;
  views.reserve(keys.size());
  for (const SampleKey& key : keys) views.push_back(samples_.at(key));
  return views;
}

absl::Status StoredSamples::Fetch(const std::vector<SampleKey>& keys) {
  if (open_ == nullptr) return DataLoss("this rank has no datastore");
  if (store_ == nullptr) {
    absl::StatusOr<std::unique_ptr<TrajectoryStore>> store = open_(job_);
    if (absl::IsNotFound(store.status())) {
      return NotFound(Message(store.status()), "; is this rank's --redis that of the cluster?");
    }
    FRESHET_ASSIGN_OR_RETURN(store_, std::move(store));
  }
  FRESHET_ASSIGN_OR_RETURN(std::vector<SampleView> views, store_->ReadSamples(keys));
  for (size_t i = 0; i < keys.size(); ++i) samples_[keys[i]] = std::move(views[i]);
  return absl::OkStatus();
}

}  // namespace freshet
