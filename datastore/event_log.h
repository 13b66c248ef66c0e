#ifndef FRESHET_DATASTORE_EVENT_LOG_H_
#define FRESHET_DATASTORE_EVENT_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace freshet {

struct StoredEvent {
  int64_t cursor = 0;
  std::string key;
  std::string value;
};

struct NewEvent {
  std::string stream;
  std::string key;  // "" for none
  std::string value;
};

struct EventPage {
  std::vector<StoredEvent> events;  // sorted by cursor
  // Retention removed events between the requested cursor and the first of these.
  bool gap = false;
};

struct EventLogOptions {
  int64_t max_length = 100'000;  // events kept per stream; the oldest are removed
  int64_t recent_keys = 10'000;  // keys that make Append idempotent; at most max_length
  // Key and value bytes kept per stream. The oldest events are removed, but never the newest one.
  int64_t max_bytes = int64_t{64} << 20;

  // INVALID_ARGUMENT: an option is out of range; the message names it, its value and its bound.
  absl::Status Validate() const;
};

constexpr int64_t kMaxEventBytes = int64_t{4} << 20;       // per value
constexpr int64_t kMaxEventKeyBytes = 1024;                // per key or stream name
constexpr int64_t kMaxEventPage = 10'000;                  // events per page
constexpr int64_t kMaxEventPageBytes = int64_t{16} << 20;  // page values, excluding the last
constexpr absl::Duration kMaxEventWait = absl::Minutes(1);

// Named append-only streams of bounded length. A stream numbers its events 1, 2, 3, ...: the
// cursor. A job's streams are "{JOBID}:events" and "{JOBID}:samples".
//
// Errors: INVALID_ARGUMENT (empty stream name, negative cursor, or a bound above exceeded);
// UNAVAILABLE, RESOURCE_EXHAUSTED, PERMISSION_DENIED and DATA_LOSS from the backend (Redis only).
// Thread-safe.
class EventLog {
 public:
  virtual ~EventLog() = default;

  // Appends the events in order, in one round trip. Returns their cursors. If a key is among the
  // stream's recent_keys newest appends and its event still exists, returns that event's cursor and
  // appends nothing, whatever the value. The key "" is not deduplicated. INVALID_ARGUMENT appends
  // nothing; after other errors some of the events may have been appended.
  virtual absl::StatusOr<std::vector<int64_t>> AppendAll(const std::vector<NewEvent>& events) = 0;
  // Appends one event. Returns its cursor.
  absl::StatusOr<int64_t> Append(const std::string& stream, const std::string& key,
                                 const std::string& value);
  // Returns up to `max` events (1..kMaxEventPage) with cursors above `after`; 0 reads from the
  // oldest. If there are none, blocks without polling for up to `wait` (capped at kMaxEventWait),
  // then returns an empty page. A page also ends with the value that brings it to
  // kMaxEventPageBytes.
  // OUT_OF_RANGE: `after` is above the newest cursor, because the stream was deleted.
  virtual absl::StatusOr<EventPage> Read(const std::string& stream, int64_t after, int64_t max,
                                         absl::Duration wait) = 0;
  // Cursor of the newest event; 0 if the stream is empty.
  virtual absl::StatusOr<int64_t> Newest(const std::string& stream) = 0;
  // Deletes the stream and resets its numbering. OK if there is no such stream.
  virtual absl::Status Delete(const std::string& stream) = 0;
};

// Checks and errors shared by all adapters.
absl::Status ValidateEventAppend(const std::string& stream, const std::string& key,
                                 const std::string& value);
absl::Status ValidateEventRead(const std::string& stream, int64_t after, int64_t max);
absl::Status EventCursorError(const std::string& stream, int64_t after, int64_t newest);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_EVENT_LOG_H_
