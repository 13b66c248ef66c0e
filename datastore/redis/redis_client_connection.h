#ifndef FRESHET_DATASTORE_REDIS_REDIS_CLIENT_CONNECTION_H_
#define FRESHET_DATASTORE_REDIS_REDIS_CLIENT_CONNECTION_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datastore/redis/redis_client.h"
#include "datastore/redis/redis_client_reply.h"
#include "datastore/redis/redis_tls.h"

namespace freshet {

// Commands encoded in the Redis protocol. Confined to one thread at a time.
class RedisWire {
 public:
  // Arguments of 1 KiB or more are not copied: they must outlive this object unchanged.
  void Append(const std::vector<std::string>& args);
  void Append(std::vector<std::string>&& args) = delete;
  size_t num_commands() const { return num_commands_; }
  // All bytes in order. Valid until the next Append.
  std::vector<std::string_view> Pieces() const;

 private:
  struct Large {
    size_t at;  // inserted before this byte of text_
    std::string_view bytes;
  };

  std::string text_;
  std::vector<Large> large_;
  size_t num_commands_ = 0;
};

// One TCP or TLS connection to a server. Deadlines are times of SystemClock. After any error but an
// error reply the connection must be dropped. Confined to one thread at a time.
class RedisConnection {
 public:
  // Connects, shakes hands and authenticates. The name is resolved by the system, with the system's
  // time limits. UNAVAILABLE or PERMISSION_DENIED.
  static absl::StatusOr<std::unique_ptr<RedisConnection>> Open(const RedisOptions& options,
                                                               absl::Time deadline);
  ~RedisConnection();
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  // Sends the commands and returns their replies in order. Reads while writing, so that a long
  // pipeline cannot deadlock. DATA_LOSS also if the server sends extra bytes.
  absl::StatusOr<std::vector<RedisRawReply>> Exchange(const RedisWire& wire, absl::Time deadline);

  // Sends the commands only; read the replies with AwaitPush.
  absl::Status Send(const RedisWire& wire, absl::Time deadline);
  // Returns the next reply or message; nullopt if `wake_fd` (an eventfd, or -1) becomes readable or
  // the deadline passes.
  absl::StatusOr<std::optional<RedisRawReply>> AwaitPush(int wake_fd, absl::Time deadline);

  // False when the server has closed it, or sent what nobody asked for.
  bool IsIdle();

  // Digests of the scripts sent to the server on this connection.
  std::set<std::string>& known_scripts() { return known_scripts_; }

 private:
  RedisConnection(int fd, std::string peer, int64_t max_reply_bytes);

  absl::Status Handshake(absl::Time deadline);
  absl::Status Authenticate(const RedisOptions& options, absl::Time deadline);
  // Waits for poll(2) `events` on the socket. UNAVAILABLE at the deadline.
  absl::StatusOr<short> Poll(short events, absl::Time deadline);
  // Reads at least one byte if some have come. UNAVAILABLE when the connection is closed.
  absl::Status ReadSome();
  // Writes without blocking and removes the written bytes from the front of `pieces`.
  absl::Status WriteSome(std::vector<std::string_view>& pieces, size_t& first);
  absl::StatusOr<size_t> WritePlain(const std::vector<std::string_view>& pieces, size_t first);
  absl::StatusOr<size_t> WriteTls(std::string_view piece);
  // The status of a call of OpenSSL that returned `result` <= 0: OK if it waits for the socket.
  absl::Status TlsResult(int result, std::string_view what);

  const int fd_;
  const std::string peer_;  // "host:port"
  SslPtr tls_;              // null: plain
  RedisReplyParser parser_;
  std::set<std::string> known_scripts_;
  std::vector<char> buffer_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_CLIENT_CONNECTION_H_
