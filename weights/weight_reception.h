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

// Receives one version in order, piece by piece, and verifies each bucket when it is complete. The
// verified prefix can be relayed while the rest is still arriving. Append is confined to one thread
// at a time; all else is thread-safe.
class WeightReception {
 public:
  // `on_progress` is called without a lock when more bytes are verified and on abort.
  // Returns:
  //   INVALID_ARGUMENT: the manifest exceeds a limit or is inconsistent.
  //   RESOURCE_EXHAUSTED: out of memory.
  static absl::StatusOr<std::shared_ptr<WeightReception>> Create(
      WeightManifest manifest, const WeightLimits& limits, WeightBufferPool& pool,
      std::function<void()> on_progress = {});

  // Appends bytes at `offset`, which must be the end of the previous piece. After an error the
  // reception is discarded, and later calls return the same error.
  //   INVALID_ARGUMENT: a gap, an overlap, or bytes beyond the end.
  //   DATA_LOSS: a bucket differs from the manifest.
  absl::Status Append(int64_t offset, std::string_view piece) ABSL_LOCKS_EXCLUDED(mu_);

  // Discards the version; Verified() then returns `reason`, which must not be OK. No effect if
  // complete or already aborted.
  void Abort(const absl::Status& reason) ABSL_LOCKS_EXCLUDED(mu_);

  // Length of the verified prefix of bytes(); total_bytes when complete.
  absl::StatusOr<int64_t> Verified() const ABSL_LOCKS_EXCLUDED(mu_);

  const WeightManifest& manifest() const { return manifest_; }
  // The arena being filled.
  const WeightBytes& bytes() const { return bytes_; }
  // Hashing time so far. Call it on the appending thread.
  absl::Duration verify_time() const { return verify_time_; }

 private:
  WeightReception(WeightManifest manifest, std::shared_ptr<WeightBuffer> buffer,
                  std::function<void()> on_progress)
      : manifest_(std::move(manifest)),
        buffer_(std::move(buffer)),
        bytes_(Freeze(buffer_)),
        on_progress_(std::move(on_progress)) {}

  absl::Status Take(int64_t offset, std::string_view piece);
  // Verifies newly completed buckets.
  absl::Status VerifyWhole();

  const WeightManifest manifest_;
  const std::shared_ptr<WeightBuffer> buffer_;
  const WeightBytes bytes_;
  const std::function<void()> on_progress_;
  int64_t received_ = 0;
  int64_t checked_ = 0;  // verified bytes, as seen by the appending thread
  absl::Duration verify_time_;
  mutable Mutex mu_;
  int64_t verified_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_WEIGHTS_WEIGHT_RECEPTION_H_
