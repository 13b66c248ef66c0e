#ifndef FRESHET_TRAINER_SERVICE_EVENT_OUTBOX_H_
#define FRESHET_TRAINER_SERVICE_EVENT_OUTBOX_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "datastore/event_log.h"

namespace freshet {

struct EventOutboxOptions {
  int64_t max_rows = 4096;
  int64_t max_bytes = int64_t{64} << 20;  // of keys and values
};

// A row for an event stream. Expendable rows are dropped first if too many wait.
struct OutboxRow {
  NewEvent event;
  bool expendable = false;
};

// The trainer's rows on their way to its job's event streams. Rows that the log does not accept now
// are kept, in order and up to a bound, and are sent first at the next call. A row whose reply was
// lost is resent; its key deduplicates it. Kept rows are lost with the process. Not thread-safe;
// the log must outlive this object.
class EventOutbox {
 public:
  EventOutbox(EventLog& log, EventOutboxOptions options) : log_(log), options_(options) {}

  // Sends all waiting rows and these. OK: the log has them. Otherwise returns the log's error, and
  // the missing rows wait. Rows that the log rejects permanently (INVALID_ARGUMENT) are dropped.
  absl::Status Send(std::vector<OutboxRow> rows);

  int64_t waiting() const { return static_cast<int64_t>(rows_.size()); }
  // Rows dropped because of the bound or rejected by the log.
  int64_t dropped() const { return dropped_; }
  int64_t max_rows() const { return options_.max_rows; }

 private:
  // Sends the first `count` rows in one call.
  absl::Status SendFirst(size_t count);
  // Number of rows in the next call.
  size_t NextSlice() const;
  void MakeRoom();
  void Drop(std::deque<OutboxRow>::iterator row, const std::string& reason);

  EventLog& log_;
  const EventOutboxOptions options_;
  std::deque<OutboxRow> rows_;
  int64_t bytes_ = 0;  // of rows_
  int64_t dropped_ = 0;
};

}  // namespace freshet

#endif  // FRESHET_TRAINER_SERVICE_EVENT_OUTBOX_H_
