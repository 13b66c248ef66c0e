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

// A reply as it comes from the wire: an error reply has its text in `reply.text`.
struct RedisRawReply {
  bool is_error = false;
  RedisReply reply;
};

// The Status of an error reply ("OOM command not allowed ..."), by its first word. Codes as in
// RedisClient. `command` names what was asked, for the message.
absl::Status RedisErrorStatus(std::string_view text, std::string_view command);

constexpr int kMaxRedisReplyDepth = 6;                        // arrays within arrays
constexpr int64_t kMaxRedisReplyElements = int64_t{1} << 22;  // in one reply, nested ones included

// Splits the server's bytes into replies. Memory is bounded by the limits whatever the bytes are.
// DATA_LOSS is final: the bytes after it mean nothing. Confined to one thread at a time.
class RedisReplyParser {
 public:
  explicit RedisReplyParser(int64_t max_reply_bytes);
  ~RedisReplyParser();
  RedisReplyParser(const RedisReplyParser&) = delete;
  RedisReplyParser& operator=(const RedisReplyParser&) = delete;

  // DATA_LOSS: the unfinished reply is larger than max_reply_bytes.
  absl::Status Feed(std::string_view bytes);
  // The next whole reply, or nullopt when more bytes are needed. DATA_LOSS: not the protocol, or
  // over a limit.
  absl::StatusOr<std::optional<RedisRawReply>> Next();
  // Whether bytes are left that belong to no reply handed out.
  bool HasLeftover() const;

 private:
  struct Reader;

  std::unique_ptr<Reader> reader_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_CLIENT_REPLY_H_
