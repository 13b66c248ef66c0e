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

// An event to append.
struct NewEvent {
  std::string stream;
  std::string key;  // "" for none
  std::string value;
};

struct EventPage {
  std::vector<StoredEvent> events;  // by cursor
  // Events after the cursor that was asked for, before the first of these, are gone by retention.
  bool gap = false;
};

struct EventLogOptions {
  int64_t max_length = 100'000;  // events kept in a stream; older ones go
  int64_t recent_keys = 10'000;  // keys by which Append is idempotent; at most max_length
  // Bytes of keys and values kept in a stream; older events go, but never the newest one.
  int64_t max_bytes = int64_t{64} << 20;

  // INVALID_ARGUMENT naming the option, its value and its bound.
  absl::Status Validate() const;
};

constexpr int64_t kMaxEventBytes = int64_t{4} << 20;       // of a value
constexpr int64_t kMaxEventKeyBytes = 1024;                // of a key or a stream's name
constexpr int64_t kMaxEventPage = 10'000;                  // events in a page
constexpr int64_t kMaxEventPageBytes = int64_t{16} << 20;  // of a page's values, the last excepted
constexpr absl::Duration kMaxEventWait = absl::Minutes(1);

// Named append-only streams of bounded length. A stream's events are numbered 1, 2, 3, ...: the
// cursor. Streams of a job are "{JOBID}:events" and "{JOBID}:samples".
//
// Errors: INVALID_ARGUMENT (an empty stream name, a negative cursor, something over the bounds
// above), and the backend's UNAVAILABLE, RESOURCE_EXHAUSTED, PERMISSION_DENIED, DATA_LOSS (Redis
// only).
// Thread-safe.
class EventLog {
 public:
  virtual ~EventLog() = default;

  // Appends the events, in order, to their streams, in one round trip. Returns their cursors. A key
  // that is among the stream's recent_keys newest appends, and whose event is still there, gives
  // that event's cursor and changes nothing, whatever the value; "" is never remembered.
  // INVALID_ARGUMENT changes nothing; after another error some of the events may be there.
  virtual absl::StatusOr<std::vector<int64_t>> AppendAll(const std::vector<NewEvent>& events) = 0;
  // AppendAll of one event: its cursor.
  absl::StatusOr<int64_t> Append(const std::string& stream, const std::string& key,
                                 const std::string& value);
  // Up to `max` events (1..kMaxEventPage) with a cursor above `after`; 0 reads from the oldest one.
  // Where there is none, blocks for up to `wait` (cut to kMaxEventWait) until one comes, without
  // polling; an empty page says that none came. A page also ends
  // with the value that brings it to kMaxEventPageBytes.
  // OUT_OF_RANGE: `after` is above the newest cursor: the stream was deleted.
  virtual absl::StatusOr<EventPage> Read(const std::string& stream, int64_t after, int64_t max,
                                         absl::Duration wait) = 0;
  // Cursor of the newest event; 0 for a stream without one.
  virtual absl::StatusOr<int64_t> Newest(const std::string& stream) = 0;
  // Removes the stream; its numbering starts again. OK when there is none.
  virtual absl::Status Delete(const std::string& stream) = 0;
};

// The checks and the error that all adapters share.
absl::Status ValidateEventAppend(const std::string& stream, const std::string& key,
                                 const std::string& value);
absl::Status ValidateEventRead(const std::string& stream, int64_t after, int64_t max);
absl::Status EventCursorError(const std::string& stream, int64_t after, int64_t newest);

}  // namespace freshet

#endif  // FRESHET_DATASTORE_EVENT_LOG_H_
