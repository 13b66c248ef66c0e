#ifndef FRESHET_DATASTORE_REDIS_REDIS_CLIENT_H_
#define FRESHET_DATASTORE_REDIS_REDIS_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datastore/job_records.h"
#include "datastore/redis/redis_subscription.h"
#include "datastore/redis/redis_tls.h"

namespace freshet {

// Server address and client limits.
struct RedisOptions {
  std::string host = "127.0.0.1";  // name or address; all its addresses are tried in turn
  int port = 6379;
  std::string username;  // of AUTH; "": the default user
  std::string password;  // "" sends no AUTH; never logged
  RedisTlsOptions tls;
  absl::Duration connect_timeout = absl::Seconds(2);
  absl::Duration command_timeout = absl::Seconds(5);  // whole call: write, server, all replies
  int64_t max_reply_bytes = int64_t{256} << 20;       // per reply
  int max_connections = 8;                            // for commands and pipelines
  int max_blocking_connections = 64;                  // for BlockingCommand and subscriptions
  absl::Duration reconnect_backoff_min = absl::Milliseconds(10);
  absl::Duration reconnect_backoff_max = absl::Milliseconds(500);

  // INVALID_ARGUMENT: an option is out of range; the message names it, its value and its bound.
  absl::Status Validate() const;
};

// One reply. Error replies are returned as a Status instead.
struct RedisReply {
  enum class Kind { kNil, kInteger, kString, kStatus, kArray };
  Kind kind = Kind::kNil;
  int64_t integer = 0;            // kInteger
  std::string text;               // kString (bytes), kStatus
  std::vector<RedisReply> items;  // kArray; an error inside an array is a kStatus "ERR ..."

  bool IsNil() const { return kind == Kind::kNil; }
};

// A server-side script. Both strings must be literals (static lifetime).
struct RedisScript {
  const char* name;
  const char* source;
};

// Client of one Redis server: a bounded pool of lazily opened connections, each used by one call at
// a time. Any failure other than an error reply closes the connection, so a call never receives
// another call's reply.
//
// Errors of all calls:
//   UNAVAILABLE: cannot connect, TLS fails, connection lost, timeout, no free connection in time,
//     or the server replied LOADING, READONLY, MASTERDOWN, TRYAGAIN, CLUSTERDOWN or MISCONF (it
//     cannot write its files). After a lost connection or timeout the effect is unknown: retry only
//     idempotent calls.
//   RESOURCE_EXHAUSTED: the server is out of memory (OOM); no effect.
//   PERMISSION_DENIED: NOAUTH, WRONGPASS, NOPERM, or a password sent to a server without one.
//   DATA_LOSS: a reply exceeds the size or depth limits, or is not the Redis protocol.
//   FAILED_PRECONDITION: a key has another type (WRONGTYPE).
//   INTERNAL: any other error reply, such as a script error.
// After a failed connect, attempts wait for a backoff that doubles up to reconnect_backoff_max, so
// callers can retry without pausing.
// Thread-safe.
class RedisClient {
 public:
  // INVALID_ARGUMENT: bad options. Does not connect.
  static absl::StatusOr<std::shared_ptr<RedisClient>> Create(RedisOptions options);
  ~RedisClient();
  RedisClient(const RedisClient&) = delete;
  RedisClient& operator=(const RedisClient&) = delete;

  // args[0] is the command name; requires at least one argument. Arguments may be any bytes.
  absl::StatusOr<RedisReply> Command(const std::vector<std::string>& args);

  // Sends all commands in one round trip. The outer error means that the call failed as a whole; an
  // inner error is the reply to that command. A script that the server lost (SCRIPT FLUSH) is rerun
  // after the other commands.
  absl::StatusOr<std::vector<absl::StatusOr<RedisReply>>> Pipeline(
      const std::vector<std::vector<std::string>>& commands);

  // EVALSHA. Sends the source in the same round trip if this connection has not sent it yet.
  absl::StatusOr<RedisReply> Run(const RedisScript& script, const std::vector<std::string>& keys,
                                 const std::vector<std::string>& args);

  // The command that Run would send, for use in a Pipeline of this client.
  std::vector<std::string> ScriptCommand(const RedisScript& script,
                                         const std::vector<std::string>& keys,
                                         const std::vector<std::string>& args);

  // A command that blocks in the server for up to `wait` (XREAD BLOCK, BLPOP). Its timeout is
  // `wait` + command_timeout. Uses a separate connection pool.
  absl::StatusOr<RedisReply> BlockingCommand(const std::vector<std::string>& args,
                                             absl::Duration wait);

  // Subscribes on a dedicated connection. On return the server has confirmed all channels. The
  // subscription may outlive the client.
  absl::StatusOr<std::unique_ptr<RedisSubscription>> Subscribe(
      const std::vector<std::string>& channels);

  const RedisOptions& options() const;

 private:
  struct State;
  explicit RedisClient(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

// Deletes every key `{job}:*` in slices by SCAN and UNLINK. Returns the number of keys removed.
// Call it when no member works on the job; keys written concurrently may survive. The first slice
// closes the job's trajectory store for everyone that has it open; the last one frees its name.
// Idempotent: retry after an error.
// INVALID_ARGUMENT: the job id is empty or has characters other than [A-Za-z0-9._-].
// FAILED_PRECONDITION: the job records have seen a larger fence, or the store has a larger
// generation; every slice checks both atomically.
absl::StatusOr<int64_t> DeleteJobKeys(RedisClient& client, const JobRemoval& removal);
// Like DeleteJobKeys, but deletes only the store's groups, bytes and leases: for a job that will
// not be resumed. Its ledger and counters stay readable.
absl::StatusOr<int64_t> DeleteJobSamples(RedisClient& client, const JobRemoval& removal);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_CLIENT_H_
