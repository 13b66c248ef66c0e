#include "weights/bucket_progress.h"

#include <algorithm>
#include <cstddef>

namespace freshet {

BucketProgress::BucketProgress(int64_t total_bytes, int64_t bucket_bytes)
    : total_bytes_(total_bytes),
      bucket_bytes_(bucket_bytes),
      missing_(static_cast<size_t>((total_bytes + bucket_bytes - 1) / bucket_bytes)),
      verified_(missing_.size()) {
  Restart(0);
}

int64_t BucketProgress::SizeOf(int64_t bucket) const {
  return std::min(bucket_bytes_, total_bytes_ - bucket * bucket_bytes_);
}

void BucketProgress::Restart(int64_t first) {
  const MutexLock lock(mu_);
  prefix_ = (first + bucket_bytes_ - 1) / bucket_bytes_;
  for (auto bucket = static_cast<size_t>(prefix_); bucket < missing_.size(); ++bucket) {
    missing_[bucket] = SizeOf(static_cast<int64_t>(bucket));
    verified_[bucket] = false;
  }
}

std::vector<int64_t> BucketProgress::Arrived(ByteRange range) {
  std::vector<int64_t> complete;
  const MutexLock lock(mu_);
  for (int64_t at = range.first; at < range.first + range.size;) {
    const int64_t bucket = at / bucket_bytes_;
    const int64_t end = std::min((bucket + 1) * bucket_bytes_, range.first + range.size);
    int64_t& missing = missing_[static_cast<size_t>(bucket)];
    missing -= end - at;
    if (missing == 0) complete.push_back(bucket);
    at = end;
  }
  return complete;
}

void BucketProgress::Verified(int64_t bucket) {
  const MutexLock lock(mu_);
  verified_[static_cast<size_t>(bucket)] = true;
  while (static_cast<size_t>(prefix_) < verified_.size() &&
         verified_[static_cast<size_t>(prefix_)]) {
    ++prefix_;
  }
}

int64_t BucketProgress::verified_prefix() const {
  const MutexLock lock(mu_);
  return std::min(prefix_ * bucket_bytes_, total_bytes_);
}

}  // namespace freshet
