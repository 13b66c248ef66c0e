#ifndef FRESHET_DATASTORE_REDIS_REDIS_PUTS_H_
#define FRESHET_DATASTORE_REDIS_REDIS_PUTS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/redis/redis_script_runner.h"
#include "datastore/trajectory_store.h"

namespace freshet {

// Puts of prompts, samples and scores. Meaning and errors as in TrajectoryStore; other errors
// as in RedisScriptRunner. `runner` must outlive the object. Thread-safe.
class RedisPuts {
 public:
  explicit RedisPuts(RedisScriptRunner& runner) : runner_(runner), config_(runner.config()) {}

  absl::StatusOr<PutPromptsReply> PutPrompts(const std::vector<Prompt>& prompts);
  // One script per 256 entries or 16 MiB, whichever comes first.
  absl::StatusOr<std::vector<absl::Status>> PutSamples(const std::vector<SamplePut>& samples);
  absl::StatusOr<std::vector<absl::Status>> PutRows(const std::vector<RowPut>& rows);

 private:
  RedisScriptRunner& runner_;
  const RedisStoreConfig& config_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_PUTS_H_
