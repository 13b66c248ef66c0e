#ifndef FRESHET_BENCH_DATASTORE_RL_MIX_H_
#define FRESHET_BENCH_DATASTORE_RL_MIX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "datastore/redis/redis_client.h"

namespace freshet {

// The work of a training job's members on the store, without the model: producers lease groups and
// put samples of log-normal length, a trainer claims, reads and commits steps and makes versions
// durable, a controller feeds prompts and sweeps. Scores come along with the samples, or a scorer
// leases, reads and scores every one of them.
struct RlMixOptions {
  RedisOptions redis;
  int64_t samples = 20'480;  // rounded up to whole steps
  int producers = 4;
  int32_t group_size = 16;
  int64_t groups_per_step = 64;
  int64_t staleness = 2;
  double samples_per_second = 0;  // offered in all; 0: as fast as it goes
  bool scorer = false;
  double median_tokens = 1500;
  double sigma = 1;  // of the logarithm
  int64_t max_tokens = 16'384;
  uint64_t seed = 1;
};

struct RlMixResult {
  int64_t samples = 0;
  double seconds = 0;  // from the first lease to the last commit
  double client_cpu_seconds = 0;
  double server_cpu_seconds = 0;
  // Round trips of claims that gave a batch: the script alone, and until its bytes were there.
  std::vector<double> claim_seconds;
  std::vector<double> batch_seconds;
  // What the trainer found wrong: samples beyond the bound, groups of another size, bytes that are
  // not those put.
  int64_t violations = 0;
};

// Makes a store of its own, runs the mix, deletes the store.
absl::StatusOr<RlMixResult> RunRlMix(const RlMixOptions& options);

// Mean size of a sample's record under these options, in bytes.
int64_t MeanRecordBytes(const RlMixOptions& options);

// Server time of claims of `groups_per_step` groups that stand ready with nobody else at work, in
// seconds; of `claims` of them, by the server's own count.
absl::StatusOr<std::vector<double>> ServerTimeOfClaims(const RlMixOptions& options, int claims);

}  // namespace freshet

#endif  // FRESHET_BENCH_DATASTORE_RL_MIX_H_
