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

// Where a server is and what a client may spend on it.
struct RedisOptions {
  std::string host = "127.0.0.1";  // name or address; all its addresses are tried in turn
  int port = 6379;
  std::string username;  // of AUTH; "": the default user
  std::string password;  // "" sends no AUTH; never logged
  RedisTlsOptions tls;
  absl::Duration connect_timeout = absl::Seconds(2);
  absl::Duration command_timeout = absl::Seconds(5);  // whole call: write, server, all replies
  int64_t max_reply_bytes = int64_t{256} << 20;       // of one reply
  int max_connections = 8;                            // for commands and pipelines
  int max_blocking_connections = 64;                  // for BlockingCommand and subscriptions
  absl::Duration reconnect_backoff_min = absl::Milliseconds(10);
  absl::Duration reconnect_backoff_max = absl::Milliseconds(500);

  // INVALID_ARGUMENT naming the option, its value and its bound.
  absl::Status Validate() const;
};

// One reply, errors excluded: those are a Status.
struct RedisReply {
  enum class Kind { kNil, kInteger, kString, kStatus, kArray };
  Kind kind = Kind::kNil;
  int64_t integer = 0;            // kInteger
  std::string text;               // kString (bytes), kStatus
  std::vector<RedisReply> items;  // kArray; an error inside an array is a kStatus "ERR ..."

  bool IsNil() const { return kind == Kind::kNil; }
};

// A server-side script. Both strings live as long as the program (literals).
struct RedisScript {
  const char* name;
  const char* source;
};

// Counts since the client was made, for metrics.
struct RedisCounters {
  int64_t commands = 0;    // commands written, each one of a pipeline
  int64_t errors = 0;      // calls and commands that ended in an error
  int64_t reconnects = 0;  // connections opened in place of broken ones
};

// Client of one Redis server: a bounded pool of connections, opened when first needed, each used by
// one call at a time. A call that fails in any way other than an error reply closes its connection,
// so no reply ever reaches another call.
//
// Errors of all calls:
//   UNAVAILABLE: no connection, a cut one, a timeout, no free connection in time, or the server
//   says
//     LOADING, READONLY, MASTERDOWN, TRYAGAIN, CLUSTERDOWN or MISCONF (it cannot write its files).
//     After a cut connection or a timeout the effect is unknown: repeat only what is idempotent.
//   RESOURCE_EXHAUSTED: the server is out of memory (OOM); no effect.
//   PERMISSION_DENIED: NOAUTH, WRONGPASS, NOPERM, or a password that the server does not want.
//   DATA_LOSS: a reply is larger or deeper than the limits, or is not the Redis protocol.
//   FAILED_PRECONDITION: a key holds another type (WRONGTYPE).
//   INTERNAL: any other error reply, such as that of a script.
// After a failed connect, tries wait out a backoff that doubles up to reconnect_backoff_max, so a
// caller that repeats a call needs no pause of its own.
// Thread-safe.
class RedisClient {
 public:
  // INVALID_ARGUMENT for bad options. Opens no connection.
  static absl::StatusOr<std::shared_ptr<RedisClient>> Create(RedisOptions options);
  ~RedisClient();
  RedisClient(const RedisClient&) = delete;
  RedisClient& operator=(const RedisClient&) = delete;

  // args[0] is the command's name; arguments are any bytes. At least one argument.
  absl::StatusOr<RedisReply> Command(const std::vector<std::string>& args);

  // Sends all commands at once and reads as many replies: one round trip. The outer error says that
  // the call failed as a whole; an inner one is the error reply of that command.
  // A script that the server has lost (SCRIPT FLUSH) is run again after the other commands.
  absl::StatusOr<std::vector<absl::StatusOr<RedisReply>>> Pipeline(
      const std::vector<std::vector<std::string>>& commands);

  // EVALSHA; the source goes along, in the same round trip, when this connection has not sent it.
  absl::StatusOr<RedisReply> Run(const RedisScript& script, const std::vector<std::string>& keys,
                                 const std::vector<std::string>& args);

  // The command that Run would send, to put into a Pipeline of this client.
  std::vector<std::string> ScriptCommand(const RedisScript& script,
                                         const std::vector<std::string>& keys,
                                         const std::vector<std::string>& args);

  // A command that blocks in the server for up to `wait` (XREAD BLOCK, BLPOP): its time limit is
  // `wait` + command_timeout, and its connection comes from a pool apart from the other commands'.
  absl::StatusOr<RedisReply> BlockingCommand(const std::vector<std::string>& args,
                                             absl::Duration wait);

  // A subscription with a connection of its own. The server has confirmed all channels. The
  // subscription may outlive the client.
  absl::StatusOr<std::unique_ptr<RedisSubscription>> Subscribe(
      const std::vector<std::string>& channels);

  RedisCounters Counters() const;
  const RedisOptions& options() const;

 private:
  struct State;
  explicit RedisClient(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

// Deletes every key `{job}:*` in slices by SCAN and UNLINK. Returns the number of keys removed.
// Call it when no member works on the job; a key written meanwhile may stay. The first slice closes
// the job's trajectory store to all that have it open, the last one frees its name. Idempotent:
// repeat it after an error.
// INVALID_ARGUMENT: an empty job id, or one with characters other than [A-Za-z0-9._-].
// FAILED_PRECONDITION: the job records have seen a larger fence, or the store is of a larger
// generation; each slice checks both in the same atomic operation.
absl::StatusOr<int64_t> DeleteJobKeys(RedisClient& client, const JobRemoval& removal);
// As DeleteJobKeys, but only the groups of the job's store, their bytes and their leases: for a job
// that is not resumed. Its ledger and counters can still be read.
absl::StatusOr<int64_t> DeleteJobSamples(RedisClient& client, const JobRemoval& removal);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_CLIENT_H_
