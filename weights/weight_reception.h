#ifndef FRESHET_WEIGHTS_WEIGHT_RECEPTION_H_
#define FRESHET_WEIGHTS_WEIGHT_RECEPTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "weights/manifest.h"
#include "weights/weight_buffer_pool.h"

namespace freshet {

// Takes one version that arrives piece by piece, in order, and checks each bucket as soon as it is
// whole. The verified prefix may be read, to pass it on, while the rest still arrives.
// Append is confined to one thread at a time; all else is thread-safe.
class WeightReception {
 public:
  // `on_progress` is called, without a lock, when more bytes are verified and when it is aborted.
  // Returns:
  //   INVALID_ARGUMENT: the manifest breaks a limit or contradicts itself.
  //   RESOURCE_EXHAUSTED: no memory.
  static absl::StatusOr<std::shared_ptr<WeightReception>> Create(
      WeightManifest manifest, const WeightLimits& limits, WeightBufferPool& pool,
      std::function<void()> on_progress = {});

  // Takes the bytes at `offset`, which must be where the former ones ended.
  // Returns (and nothing is kept; every later call returns the same):
  //   INVALID_ARGUMENT: a gap, an overlap, or bytes beyond the end.
  //   DATA_LOSS: a bucket differs from the manifest.
  absl::Status Append(int64_t offset, std::string_view piece) ABSL_LOCKS_EXCLUDED(mu_);

  // Gives the version up: `reason`, not OK, is what Verified() returns from now on. No effect on
  // one that is complete or was aborted before.
  void Abort(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);

  // Length of the prefix of bytes() that is verified; total_bytes when the version is complete.
  absl::StatusOr<int64_t> Verified() const ABSL_LOCKS_EXCLUDED(mu_);

  const WeightManifest& manifest() const { return manifest_; }
  // The arena being filled.
  const WeightBytes& bytes() const { return bytes_; }
  // Time spent on hashing so far; for the thread that appends.
  absl::Duration verify_time() const { return verify_time_; }

 private:
  WeightReception(WeightManifest manifest, std::shared_ptr<WeightBuffer> buffer,
                  std::function<void()> on_progress)
      : manifest_(std::move(manifest)),
        buffer_(std::move(buffer)),
        bytes_(Freeze(buffer_)),
        on_progress_(std::move(on_progress)) {}

  absl::Status Take(int64_t offset, std::string_view piece);
  // Checks the buckets that have become whole.
  absl::Status VerifyWhole();

  const WeightManifest manifest_;
  const std::shared_ptr<WeightBuffer> buffer_;
  const WeightBytes bytes_;
  const std::function<void()> on_progress_;
  int64_t received_ = 0;
  int64_t checked_ = 0;  // bytes in verified buckets, as the appending thread knows them
  absl::Duration verify_time_;
  mutable Mutex mu_;
  int64_t verified_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_RECEPTION_H_
