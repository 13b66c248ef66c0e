#ifndef FRESHET_WEIGHTS_BUCKET_PROGRESS_H_
#define FRESHET_WEIGHTS_BUCKET_PROGRESS_H_

#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "weights/weight_arena.h"

namespace freshet {

// Which buckets of a version are here, while its bytes arrive in any order. Thread-safe.
class BucketProgress {
 public:
  // bucket_bytes > 0.
  BucketProgress(int64_t total_bytes, int64_t bucket_bytes);

  // Only the bytes before `first` are still here: a multiple of bucket_bytes, or total_bytes, and
  // at most verified_prefix().
  void Restart(int64_t first) ABSL_LOCKS_EXCLUDED(mu_);
  // These bytes, none of which were here, have arrived. Returns the numbers of the buckets that are
  // complete with them.
  std::vector<int64_t> Arrived(ByteRange range) ABSL_LOCKS_EXCLUDED(mu_);
  void Verified(int64_t bucket) ABSL_LOCKS_EXCLUDED(mu_);

  // Length of the prefix whose buckets are all verified.
  int64_t verified_prefix() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  int64_t SizeOf(int64_t bucket) const;

  const int64_t total_bytes_;
  const int64_t bucket_bytes_;
  mutable Mutex mu_;
  std::vector<int64_t> missing_ ABSL_GUARDED_BY(mu_);  // bytes of each bucket
  std::vector<bool> verified_ ABSL_GUARDED_BY(mu_);
  int64_t prefix_ ABSL_GUARDED_BY(mu_) = 0;  // buckets
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_BUCKET_PROGRESS_H_
