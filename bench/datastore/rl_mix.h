#ifndef FRESHET_BENCH_DATASTORE_RL_MIX_H_
#define FRESHET_BENCH_DATASTORE_RL_MIX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/redis/redis_client.h"

namespace freshet {

// The store operations of a training job, without the model. Producers lease groups and put samples
// of log-normal length; a trainer claims, reads and commits steps and marks versions durable; a
// controller feeds prompts and sweeps. Producers put scores with the samples, or with `scorer` a
// scorer leases and scores every sample.
struct RlMixOptions {
  RedisOptions redis;
  int64_t samples = 20'480;  // rounded up to whole steps
  int producers = 4;
  int32_t group_size = 16;
  int64_t groups_per_step = 64;
  int64_t staleness = 2;
  double samples_per_second = 0;  // offered in total; 0: unthrottled
  bool scorer = false;
  double median_tokens = 1500;
  double sigma = 1;  // of the log of the length
  int64_t max_tokens = 16'384;
  uint64_t seed = 1;
};

struct RlMixResult {
  int64_t samples = 0;
  double seconds = 0;  // from the first lease to the last commit
  double client_cpu_seconds = 0;
  double server_cpu_seconds = 0;
  // Claims that returned a batch: round trip of the script, and time until the bytes were read.
  std::vector<double> claim_seconds;
  std::vector<double> batch_seconds;
  // Found by the trainer: samples above the staleness bound or without score, groups of the wrong
  // size, changed bytes.
  int64_t violations = 0;
};

// Creates a store, runs the mix and deletes the store.
absl::StatusOr<RlMixResult> RunRlMix(const RlMixOptions& options);

// Mean size of a sample's record in bytes.
int64_t MeanRecordBytes(const RlMixOptions& options);

// Server time in seconds, from the server's slow log, of `claims` claims of `groups_per_step` ready
// groups on an otherwise idle store.
absl::StatusOr<std::vector<double>> ServerTimeOfClaims(const RlMixOptions& options, int claims);

}  // namespace freshet

#endif  // FRESHET_BENCH_DATASTORE_RL_MIX_H_
