#ifndef FRESHET_TESTS_DATASTORE_REDIS_REDIS_SERVER_H_
#define FRESHET_TESTS_DATASTORE_REDIS_REDIS_SERVER_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "datastore/redis/redis_client.h"

// Skips the running test where no redis-server is installed.
#define FRESHET_SKIP_WITHOUT_REDIS()                                                       \
  if (!::freshet::RedisServer::Available()) {                                              \
    GTEST_SKIP() << "redis-server is not installed at " << ::freshet::RedisServer::kBinary \
                 << ": test skipped";                                                      \
  }                                                                                        \
  static_assert(true, "")

namespace freshet {

// A real redis-server of this test's own, in a new folder under the temporary directory, on a free
// loopback port. It ends with the object, and with the process whatever happens to that. Durable by
// default: appendonly yes, appendfsync always. Every wait is bounded (10 s).
// Confined to one thread at a time.
class RedisServer {
 public:
  static constexpr const char* kBinary = "/usr/bin/redis-server";
  static bool Available();

  // `config`: redis.conf keys that replace or add to the defaults, such as {"maxmemory", "1mb"} or
  // {"requirepass", "secret"}. With "tls-cert-file" it speaks TLS on tls_port(), too. Returns when
  // the server answers.
  static absl::StatusOr<std::unique_ptr<RedisServer>> Start(
      std::map<std::string, std::string> config = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  int port() const { return port_; }
  int tls_port() const { return tls_port_; }  // 0: none
  const std::string& folder() const { return folder_; }
  pid_t pid() const { return pid_; }

  // kill -9, and waits until the process is gone.
  void Kill();
  // Starts again after Kill (or kills first), on the same port and data. Returns when it answers.
  absl::Status Restart();
  // Starts again but does not wait for an answer: for tests of LOADING.
  absl::Status Launch();
  void Stop();      // SIGSTOP
  void Continue();  // SIGCONT
  // Removes all keys (FLUSHALL).
  absl::Status Flush();

  // Options and a new client for this server, with its password if it has one.
  RedisOptions ClientOptions() const;
  // `user`: one of RedisRoles(), whose password is its name, or "" for the default user.
  std::shared_ptr<RedisClient> Client(const std::string& user = "") const;

 private:
  RedisServer() = default;
  absl::Status WaitUntilReady();

  std::map<std::string, std::string> config_;
  std::string folder_;
  int port_ = 0;
  int tls_port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace freshet

#endif  // FRESHET_TESTS_DATASTORE_REDIS_REDIS_SERVER_H_
