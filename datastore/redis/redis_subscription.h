#ifndef FRESHET_DATASTORE_REDIS_REDIS_SUBSCRIPTION_H_
#define FRESHET_DATASTORE_REDIS_REDIS_SUBSCRIPTION_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace freshet {

struct RedisMessage {
  // "" says: subscribed again after a cut connection, messages may have been missed. Whoever waits
  // for a change looks at the state now.
  std::string channel;
  std::string payload;
};

// Messages published to some channels, over one connection; made by RedisClient::Subscribe.
// Wake() is thread-safe; Next() is called by one thread at a time.
class RedisSubscription {
 public:
  struct State;
  explicit RedisSubscription(std::unique_ptr<State> state);
  ~RedisSubscription();
  RedisSubscription(const RedisSubscription&) = delete;
  RedisSubscription& operator=(const RedisSubscription&) = delete;

  // The next message, or nullopt after `timeout` or a Wake().
  // UNAVAILABLE: the connection was cut or cannot be made again within the time. The next call
  // tries again, with the client's backoff, and on success gives the message of channel "".
  // Other errors as of RedisClient.
  absl::StatusOr<std::optional<RedisMessage>> Next(absl::Duration timeout);

  // Makes the running call of Next, or else the next one, return at once.
  void Wake();

 private:
  std::unique_ptr<State> state_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_SUBSCRIPTION_H_
