#ifndef FRESHET_DATASTORE_REDIS_REDIS_SUBSCRIPTION_STATE_H_
#define FRESHET_DATASTORE_REDIS_REDIS_SUBSCRIPTION_STATE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "datastore/redis/redis_client_connection.h"
#include "datastore/redis/redis_client_pool.h"
#include "datastore/redis/redis_subscription.h"

namespace freshet {

struct RedisSubscription::State {
  State(std::shared_ptr<RedisDialer> from, std::vector<std::string> names);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Connects and subscribes. Returns after the server confirmed all channels.
  absl::Status Open(absl::Time deadline);
  absl::Status Confirm(RedisConnection& opened, const RedisWire& wire, absl::Time deadline) const;
  // The next message on the open connection.
  absl::StatusOr<std::optional<RedisMessage>> Await(absl::Time deadline);

  const std::shared_ptr<RedisDialer> dialer;
  const std::vector<std::string> channels;
  const int wake_fd;                            // eventfd
  std::unique_ptr<RedisConnection> connection;  // null while disconnected
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_SUBSCRIPTION_STATE_H_
