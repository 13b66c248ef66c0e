#ifndef FRESHET_TESTS_DATASTORE_FAILING_EVENT_LOG_H_
#define FRESHET_TESTS_DATASTORE_FAILING_EVENT_LOG_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/in_memory_event_log.h"

namespace freshet {

// An event log that can be unavailable: appends fail, some after they were stored.
class FailingEventLog final : public EventLog {
 public:
  absl::StatusOr<std::vector<int64_t>> AppendAll(const std::vector<NewEvent>& events) override {
    ++calls;
    largest = std::max(largest, events.size());
    if (back_after > 0 && calls > back_after) away = Away::kNo;
    if (away == Away::kNo) return log_->AppendAll(events);
    if (away == Away::kAnswersLost) (void)log_->AppendAll(events);
    return absl::Status(code, "the datastore is away");
  }
  absl::StatusOr<EventPage> Read(const std::string& stream, int64_t after, int64_t max,
                                 absl::Duration wait) override {
    return log_->Read(stream, after, max, wait);
  }
  absl::StatusOr<int64_t> Newest(const std::string& stream) override {
    return log_->Newest(stream);
  }
  absl::Status Delete(const std::string& stream) override { return log_->Delete(stream); }

  // Keys of a stream, in order.
  std::vector<std::string> Keys(const std::string& stream) {
    std::vector<std::string> keys;
    const auto page = log_->Read(stream, 0, kMaxEventPage, absl::ZeroDuration());
    if (page.ok()) {
      for (const StoredEvent& event : page->events) keys.push_back(event.key);
    }
    return keys;
  }

  enum class Away { kNo, kYes, kAnswersLost };
  std::atomic<Away> away = Away::kNo;
  absl::StatusCode code = absl::StatusCode::kUnavailable;
  int64_t calls = 0;
  int64_t back_after = 0;  // calls until it recovers; 0: never
  size_t largest = 0;      // most events in one call

 private:
  std::unique_ptr<InMemoryEventLog> log_ = *InMemoryEventLog::Create();
};

}  // namespace freshet

#endif  // FRESHET_TESTS_DATASTORE_FAILING_EVENT_LOG_H_
