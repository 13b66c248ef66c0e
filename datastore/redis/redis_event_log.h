#ifndef FRESHET_DATASTORE_REDIS_REDIS_EVENT_LOG_H_
#define FRESHET_DATASTORE_REDIS_REDIS_EVENT_LOG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "datastore/event_log.h"
#include "datastore/redis/redis_client.h"

namespace freshet {

// Event streams in Redis.
//
// Schema: stream NAME with entries `N-0` and fields `k` (key) and `v` (value), trimmed to
//   max_length and max_bytes. Hash NAME:keys: `n` (newest cursor), `b` (bytes of the entries from
//   cursor `c` on), `c` (first entry counted in `b`) and `k` + key -> cursor for the recent_keys
//   newest appends.
// Atomicity: Append and Delete are one script or command each. Read first polls once, then blocks
//   in XREAD on a separate connection.
// Memory limit: events of up to 8 KiB are accepted beyond it.
// Failure: errors as in RedisClient. After UNAVAILABLE an event may have been appended: retry it
//   with its key.
// Limitation: a server that loses its newest writes (appendfsync other than always) reissues their
//   cursors.
// Thread-safe.
class RedisEventLog final : public EventLog {
 public:
  static absl::StatusOr<std::unique_ptr<RedisEventLog>> Create(std::shared_ptr<RedisClient> client,
                                                               EventLogOptions options = {});

  absl::StatusOr<std::vector<int64_t>> AppendAll(const std::vector<NewEvent>& events) override;
  absl::StatusOr<EventPage> Read(const std::string& stream, int64_t after, int64_t max,
                                 absl::Duration wait) override;
  absl::StatusOr<int64_t> Newest(const std::string& stream) override;
  absl::Status Delete(const std::string& stream) override;

 private:
  RedisEventLog(std::shared_ptr<RedisClient> client, EventLogOptions options)
      : client_(std::move(client)), options_(options) {}

  absl::StatusOr<EventPage> ReadNow(const std::string& stream, int64_t after, int64_t max);

  std::shared_ptr<RedisClient> client_;
  const EventLogOptions options_;
};

}  // namespace freshet

#endif  // FRESHET_DATASTORE_REDIS_REDIS_EVENT_LOG_H_
