#ifndef FRESHET_TESTS_TESTING_IN_MEMORY_EVENT_LOG_H_
#define FRESHET_TESTS_TESTING_IN_MEMORY_EVENT_LOG_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "datastore/event_log.h"

namespace freshet {

// Event streams in memory. Thread-safe.
class InMemoryEventLog final : public EventLog {
 public:
  static absl::StatusOr<std::unique_ptr<InMemoryEventLog>> Create(EventLogOptions options = {});

  absl::StatusOr<std::vector<int64_t>> AppendAll(const std::vector<NewEvent>& events) override;
  absl::StatusOr<EventPage> Read(const std::string& stream, int64_t after, int64_t max,
                                 absl::Duration wait) override;
  absl::StatusOr<int64_t> Newest(const std::string& stream) override;
  absl::Status Delete(const std::string& stream) override;

 private:
  struct Stream {
    std::deque<StoredEvent> events;
    std::map<std::string, int64_t> recent;  // key -> cursor
    int64_t newest = 0;
    int64_t bytes = 0;
  };
  int64_t AppendOne(const NewEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Events of a stream after cursor `after`.
  static EventPage PageOf(const Stream& log, int64_t after, int64_t max);
  explicit InMemoryEventLog(EventLogOptions options) : options_(options) {}

  const EventLogOptions options_;
  Mutex mu_;
  CondVar appended_;
  std::map<std::string, Stream> streams_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_IN_MEMORY_EVENT_LOG_H_
