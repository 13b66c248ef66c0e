#include "weights/weight_reception.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/clock.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

absl::StatusOr<std::shared_ptr<WeightReception>> WeightReception::Create(
    WeightManifest manifest, const WeightLimits& limits, WeightBufferPool& pool,
    std::function<void()> on_progress) {
  FRESHET_RETURN_IF_ERROR(CheckManifest(manifest, limits));
  FRESHET_ASSIGN_OR_RETURN(std::shared_ptr<WeightBuffer> buffer,
                           pool.Get(static_cast<size_t>(manifest.total_bytes)));
  return std::shared_ptr<WeightReception>(
      new WeightReception(std::move(manifest), std::move(buffer), std::move(on_progress)));
}

absl::Status WeightReception::Append(int64_t offset, std::string_view piece) {
  FRESHET_RETURN_IF_ERROR(Verified().status());
  const absl::Status taken = Take(offset, piece);
  if (!taken.ok()) {
    Abort(taken);
    return taken;
  }
  {
    MutexLock lock(mu_);
    if (!failed_.ok()) return failed_;
    if (verified_ == checked_) return absl::OkStatus();
    verified_ = checked_;
  }
  if (on_progress_) on_progress_();
  return absl::OkStatus();
}

absl::Status WeightReception::Take(int64_t offset, std::string_view piece) {
  if (offset != received_) {
    return InvalidArgument("chunk at offset ", offset, " where ", received_, " was expected");
  }
  const int64_t left = manifest_.total_bytes - received_;
  if (static_cast<int64_t>(piece.size()) > left) {
    return InvalidArgument("chunk of ", piece.size(), " bytes at offset ", offset, ", only ", left,
                           " are left of the version");
  }
  std::memcpy(buffer_->data.get() + received_, piece.data(), piece.size());
  received_ += static_cast<int64_t>(piece.size());
  return VerifyWhole();
}

absl::Status WeightReception::VerifyWhole() {
  absl::Time start = absl::InfinitePast();
  while (checked_ < manifest_.total_bytes) {
    const int64_t size = std::min(manifest_.bucket_bytes, manifest_.total_bytes - checked_);
    if (received_ - checked_ < size) break;
    if (start == absl::InfinitePast()) start = SystemClock::Get().Now();
    FRESHET_RETURN_IF_ERROR(
        VerifyBucket(manifest_, checked_ / manifest_.bucket_bytes,
                     std::span(buffer_->data.get() + checked_, static_cast<size_t>(size))));
    checked_ += size;
  }
  if (start != absl::InfinitePast()) verify_time_ += SystemClock::Get().Now() - start;
  return absl::OkStatus();
}

void WeightReception::Abort(const absl::Status& reason) {
  {
    MutexLock lock(mu_);
    if (!failed_.ok() || verified_ == manifest_.total_bytes) return;
    failed_ = reason;
  }
  if (on_progress_) on_progress_();
}

absl::StatusOr<int64_t> WeightReception::Verified() const {
  MutexLock lock(mu_);
  if (!failed_.ok()) return failed_;
  return verified_;
}

}  // namespace freshet
