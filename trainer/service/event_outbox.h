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

// A row for an event stream. Expendable ones are given up first when too many wait.
struct OutboxRow {
  NewEvent event;
  bool expendable = false;
};

// The rows of a trainer on their way to the event streams of its job. What the log does not take
// now is kept, in order and up to a bound, and goes first at the next call. A row that was stored
// although its answer was lost is sent again: its key makes it one row. What is kept does not
// outlive the process. Confined to one thread; the log must outlive this object.
class EventOutbox {
 public:
  EventOutbox(EventLog& log, EventOutboxOptions options) : log_(log), options_(options) {}

  // Sends all that waits and these. OK: the log has them. Otherwise its error, and those that it
  // does not have wait. Rows that the log will never take (INVALID_ARGUMENT) are dropped.
  absl::Status Send(std::vector<OutboxRow> rows);
  absl::Status Flush() { return Send({}); }

  int64_t waiting() const { return static_cast<int64_t>(rows_.size()); }
  // Rows that were given up, for want of room or because the log refused them.
  int64_t dropped() const { return dropped_; }
  int64_t max_rows() const { return options_.max_rows; }

 private:
  // Sends the first `count` rows in one call.
  absl::Status SendFirst(size_t count);
  // How many of the first rows go in one call.
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
