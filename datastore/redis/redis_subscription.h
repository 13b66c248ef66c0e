#ifndef FRESHET_DATASTORE_REDIS_REDIS_SUBSCRIPTION_H_
#define FRESHET_DATASTORE_REDIS_REDIS_SUBSCRIPTION_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace freshet {

struct RedisMessage {
  // "" means that the subscription was renewed after a lost connection, so messages may be missing.
  // Waiters must then check the state itself.
  std::string channel;
  std::string payload;
};

// Messages published to some channels, on one connection. Created by RedisClient::Subscribe. Wake()
// is thread-safe; Next() is called by one thread at a time.
class RedisSubscription {
 public:
  struct State;
  explicit RedisSubscription(std::unique_ptr<State> state);
  ~RedisSubscription();
  RedisSubscription(const RedisSubscription&) = delete;
  RedisSubscription& operator=(const RedisSubscription&) = delete;

  // Returns the next message; nullopt after `timeout` or Wake().
  // UNAVAILABLE: the connection was lost, or could not be reopened in time. The next call retries
  // with the client's backoff and on success returns a message with channel "".
  // Other errors as in RedisClient.
  absl::StatusOr<std::optional<RedisMessage>> Next(absl::Duration timeout);

  // Makes the current Next, or else the next one, return at once.
  void Wake();

 private:
  std::unique_ptr<State> state_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_SUBSCRIPTION_H_
