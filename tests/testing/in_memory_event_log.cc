#include "tests/testing/in_memory_event_log.h"

#include <algorithm>

#include "base/clock.h"
#include "base/status_macros.h"

namespace freshet {
namespace {

int64_t BytesOf(const StoredEvent& event) {
  return static_cast<int64_t>(event.key.size() + event.value.size());
}

}  // namespace

absl::StatusOr<std::unique_ptr<InMemoryEventLog>> InMemoryEventLog::Create(
    EventLogOptions options) {
  FRESHET_RETURN_IF_ERROR(options.Validate());
  return std::unique_ptr<InMemoryEventLog>(new InMemoryEventLog(options));
}

absl::StatusOr<std::vector<int64_t>> InMemoryEventLog::AppendAll(
    const std::vector<NewEvent>& events) {
  for (const NewEvent& event : events) {
    FRESHET_RETURN_IF_ERROR(ValidateEventAppend(event.stream, event.key, event.value));
  }
  std::vector<int64_t> cursors;
  MutexLock lock(mu_);
  for (const NewEvent& event : events) cursors.push_back(AppendOne(event));
  appended_.NotifyAll();
  return cursors;
}

int64_t InMemoryEventLog::AppendOne(const NewEvent& event) {
  Stream& log = streams_[event.stream];
  if (!event.key.empty()) {
    if (const auto seen = log.recent.find(event.key); seen != log.recent.end()) return seen->second;
  }
  const auto forget = [&log](const StoredEvent& old) {
    const auto known = log.recent.find(old.key);
    if (known != log.recent.end() && known->second == old.cursor) log.recent.erase(known);
  };
  log.events.push_back({++log.newest, event.key, event.value});
  log.bytes += BytesOf(log.events.back());
  if (!event.key.empty()) log.recent[event.key] = log.newest;
  const auto size = static_cast<int64_t>(log.events.size());
  if (size > options_.recent_keys) {
    forget(log.events[static_cast<size_t>(size - options_.recent_keys - 1)]);
  }
  while (log.events.size() > 1 && (static_cast<int64_t>(log.events.size()) > options_.max_length ||
                                   log.bytes > options_.max_bytes)) {
    forget(log.events.front());
    log.bytes -= BytesOf(log.events.front());
    log.events.pop_front();
  }
  return log.newest;
}

EventPage InMemoryEventLog::PageOf(const Stream& log, int64_t after, int64_t max) {
  EventPage page;
  if (log.events.empty() || after >= log.newest) return page;
  const int64_t oldest = log.events.front().cursor;
  page.gap = oldest > after + 1;
  int64_t bytes = 0;
  for (auto i = static_cast<size_t>(std::max(after + 1 - oldest, int64_t{0}));
       i < log.events.size(); ++i) {
    page.events.push_back(log.events[i]);
    bytes += static_cast<int64_t>(log.events[i].value.size());
    if (static_cast<int64_t>(page.events.size()) == max || bytes >= kMaxEventPageBytes) break;
  }
  return page;
}

absl::StatusOr<EventPage> InMemoryEventLog::Read(const std::string& stream, int64_t after,
                                                 int64_t max, absl::Duration wait) {
  FRESHET_RETURN_IF_ERROR(ValidateEventRead(stream, after, max));
  const absl::Time deadline = SystemClock::Get().Now() + std::min(wait, kMaxEventWait);
  MutexLock lock(mu_);
  while (true) {
    const auto found = streams_.find(stream);
    const int64_t newest = found == streams_.end() ? 0 : found->second.newest;
    if (after > newest) return EventCursorError(stream, after, newest);
    if (after < newest) return PageOf(found->second, after, max);
    const absl::Duration left = deadline - SystemClock::Get().Now();
    if (left <= absl::ZeroDuration()) return EventPage{};
    appended_.WaitFor(mu_, left);
  }
}

absl::StatusOr<int64_t> InMemoryEventLog::Newest(const std::string& stream) {
  FRESHET_RETURN_IF_ERROR(ValidateEventRead(stream, /*after=*/0, /*max=*/1));
  MutexLock lock(mu_);
  const auto found = streams_.find(stream);
  return found == streams_.end() ? 0 : found->second.newest;
}

absl::Status InMemoryEventLog::Delete(const std::string& stream) {
  FRESHET_RETURN_IF_ERROR(ValidateEventRead(stream, /*after=*/0, /*max=*/1));
  MutexLock lock(mu_);
  streams_.erase(stream);
  return absl::OkStatus();
}

}  // namespace freshet
