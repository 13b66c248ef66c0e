#ifndef FRESHET_DATASTORE_REDIS_REDIS_CLIENT_REPLY_H_
#define FRESHET_DATASTORE_REDIS_REDIS_CLIENT_REPLY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/redis/redis_client.h"

namespace freshet {

// A reply from the wire. An error reply has its text in `reply.text`.
struct RedisRawReply {
  bool is_error = false;
  RedisReply reply;
};

// Converts an error reply ("OOM command not allowed ...") to a Status by its first word. Codes: see
// RedisClient. `command` is used in the message.
absl::Status RedisErrorStatus(std::string_view text, std::string_view command);

constexpr int kMaxRedisReplyDepth = 6;                        // nested arrays
constexpr int64_t kMaxRedisReplyElements = int64_t{1} << 22;  // per reply, including nested ones

// Splits the server's bytes into replies. Memory is bounded by the limits for any input. DATA_LOSS
// is final: later bytes are meaningless. Confined to one thread at a time.
class RedisReplyParser {
 public:
  explicit RedisReplyParser(int64_t max_reply_bytes);
  ~RedisReplyParser();
  RedisReplyParser(const RedisReplyParser&) = delete;
  RedisReplyParser& operator=(const RedisReplyParser&) = delete;

  // DATA_LOSS: the incomplete reply exceeds max_reply_bytes.
  absl::Status Feed(std::string_view bytes);
  // Returns the next complete reply, or nullopt if more bytes are needed. DATA_LOSS: not the
  // protocol, or a limit exceeded.
  absl::StatusOr<std::optional<RedisRawReply>> Next();
  // Whether there are bytes that belong to no returned reply.
  bool HasLeftover() const;

 private:
  struct Reader;

  std::unique_ptr<Reader> reader_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_CLIENT_REPLY_H_
