#ifndef FRESHET_DATASTORE_REDIS_REDIS_SCRIPT_RUNNER_H_
#define FRESHET_DATASTORE_REDIS_REDIS_SCRIPT_RUNNER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "datastore/redis/redis_change_feed.h"
#include "datastore/redis/redis_client.h"
#include "datastore/redis/redis_trajectory_store_config.h"

namespace freshet {

// Bytes to write. `name` follows "{JOB}:b:".
struct RedisBlob {
  std::string name;
  std::string bytes;
};

struct ScriptAnswer {
  std::string code;  // "OK", or as documented in the script's file
  std::vector<RedisReply> values;
  absl::Status bytes;  // why accompanying bytes were rejected (first one)
  // INTERNAL unless there are exactly that many values.
  absl::Status Expect(size_t num_values) const;
};

// The clock's time as a script argument; "" without a clock.
std::string ScriptTime(const Clock* clock);

// Runs the scripts of one job's store. A try is one round trip: SET commands for the accompanying
// bytes, which expire in 5 minutes, then the script, which makes them permanent or rejects them.
// If the bytes expired before the script ran, it is tried again, at most 3 times in all. Replies
// raise the feed's change counts.
//
// Errors besides those of RedisClient:
//   NOT_FOUND: the store was deleted or recreated.
//   FAILED_PRECONDITION, INVALID_ARGUMENT, ABORTED (fenced): the script rejected the operation.
//   UNAVAILABLE: the bytes expired before every try.
//   INTERNAL: a malformed reply.
// `feed` and `config` must outlive the runner. Thread-safe.
class RedisScriptRunner {
 public:
  RedisScriptRunner(std::shared_ptr<RedisClient> client, RedisChangeFeed& feed,
                    const RedisStoreConfig& config, std::string generation,
                    const RedisStoreSettings& settings);

  RedisClient& client() const { return *client_; }
  const RedisStoreConfig& config() const { return config_; }

  absl::StatusOr<ScriptAnswer> Run(const RedisScript& script, std::vector<std::string> args,
                                   std::vector<RedisBlob> blobs = {});
  // Like Run, for scripts that reject entries one by one. Each try calls `make_args`, and then
  // `done` with the answer; `done` returns false if some entries must be retried.
  using MakeArgs = std::function<std::vector<std::string>()>;
  using Done = std::function<absl::StatusOr<bool>(const ScriptAnswer& answer)>;
  absl::StatusOr<ScriptAnswer> RunUntil(const RedisScript& script, std::vector<RedisBlob> blobs,
                                        const MakeArgs& make_args, const Done& done);

 private:
  using Commands = std::vector<std::vector<std::string>>;

  // One try: sends `sets` (left unchanged), then the script.
  absl::StatusOr<ScriptAnswer> Send(const RedisScript& script, std::vector<std::string> args,
                                    Commands& sets);
  // Parses a reply.
  absl::StatusOr<ScriptAnswer> Accept(RedisReply reply);

  const std::shared_ptr<RedisClient> client_;
  RedisChangeFeed& feed_;
  const RedisStoreConfig& config_;
  const std::string prefix_;
  const std::string generation_;
  const std::string threshold_us_;
  const Clock* const clock_;
  const std::function<void(std::string_view script, absl::Duration took)> on_script_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_SCRIPT_RUNNER_H_
