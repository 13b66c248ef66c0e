#ifndef FRESHET_DATASTORE_REDIS_REDIS_BATCHES_H_
#define FRESHET_DATASTORE_REDIS_REDIS_BATCHES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "datastore/redis/redis_blobs.h"
#include "datastore/redis/redis_reading.h"
#include "datastore/redis/redis_script_runner.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// The trainer's epochs, batches and commits. Remembers the last batch, so that its commit can send
// the digest of the trained samples at once. Meaning and errors as in TrajectoryStore; other errors
// as in RedisScriptRunner. The arguments of the constructor must outlive the object. Thread-safe.
class RedisBatches {
 public:
  RedisBatches(RedisScriptRunner& runner, const RedisBlobReader& reader, RedisMemoryGauge& memory)
      : runner_(runner), reader_(reader), memory_(memory), config_(runner.config()) {}

  absl::StatusOr<OpenEpochReply> OpenEpoch(const EpochRequest& request);
  // UNAVAILABLE also if the groups of 256 consecutive claims had unreadable bytes.
  absl::StatusOr<NextBatchReply> Next(int64_t epoch, int64_t step) ABSL_LOCKS_EXCLUDED(mu_);
  // See TrajectoryStore::ReadSamples.
  absl::StatusOr<std::vector<SampleView>> Read(const std::vector<SampleKey>& keys);
  // UNAVAILABLE also if the batch changed during 3 tries.
  absl::StatusOr<CommitReceipt> Commit(int64_t epoch, int64_t step,
                                       const std::vector<int64_t>& ordinals,
                                       const std::string& content_hash) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Last batch returned by Next, used to compute the commit's digest.
  struct Claim {
    int64_t epoch = 0;
    int64_t step = 0;
    std::string digest;  // of the previous version
    std::vector<int64_t> ordinals;
    std::string attempts;  // as in commit_step.lua
  };

  RedisScriptRunner& runner_;
  const RedisBlobReader& reader_;
  RedisMemoryGauge& memory_;
  const RedisStoreConfig& config_;
  Mutex mu_;
  Claim claim_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_BATCHES_H_
