#ifndef FRESHET_DATASTORE_REDIS_REDIS_CLIENT_POOL_H_
#define FRESHET_DATASTORE_REDIS_REDIS_CLIENT_POOL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "datastore/redis/redis_client.h"
#include "datastore/redis/redis_client_connection.h"

namespace freshet {

// Opens connections for one client. After a failure, attempts wait for a backoff that starts at
// reconnect_backoff_min and doubles up to reconnect_backoff_max. Thread-safe.
class RedisDialer {
 public:
  explicit RedisDialer(RedisOptions options) : options_(std::move(options)) {}

  // Waits for the backoff and connects within connect_timeout, all before `deadline`.
  absl::StatusOr<std::unique_ptr<RedisConnection>> Dial(absl::Time deadline);

  // The server answered but cannot serve: backs off as after a failed connect.
  void NoteUnfit();
  // The server executed a command: resets the backoff.
  void NoteFit();

  const RedisOptions& options() const { return options_; }

 private:
  void LengthenBackoff() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RedisOptions options_;
  Mutex mu_;
  CondVar changed_;
  std::atomic<bool> backing_off_{false};       // spares NoteFit the lock
  int64_t failures_ ABSL_GUARDED_BY(mu_) = 0;  // in a row
  absl::Time next_try_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::string last_error_ ABSL_GUARDED_BY(mu_);
};

// Up to `capacity` connections, each lent to one caller at a time. Thread-safe.
class RedisConnectionPool {
 public:
  // `dialer` must outlive the pool.
  RedisConnectionPool(RedisDialer& dialer, int capacity) : dialer_(dialer), free_slots_(capacity) {}

  // Returns an idle or new connection. Every success must be followed by one GiveBack or Drop.
  // UNAVAILABLE: none became free before `deadline`.
  absl::StatusOr<std::unique_ptr<RedisConnection>> Borrow(absl::Time deadline);
  void GiveBack(std::unique_ptr<RedisConnection> connection);
  // Closes a broken connection.
  void Drop(std::unique_ptr<RedisConnection> connection);
  // Closes idle connections, because their server cannot serve.
  void DropIdle();

 private:
  absl::Status TakeSlot(absl::Time deadline);
  std::unique_ptr<RedisConnection> TakeIdle();  // null if there is none
  void FreeSlot();

  RedisDialer& dialer_;
  Mutex mu_;
  CondVar freed_;
  int free_slots_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<RedisConnection>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_CLIENT_POOL_H_
