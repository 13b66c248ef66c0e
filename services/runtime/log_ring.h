#ifndef FRESHET_SERVICES_RUNTIME_LOG_RING_H_
#define FRESHET_SERVICES_RUNTIME_LOG_RING_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/log.h"
#include "base/mutex.h"

namespace freshet::runtime {

struct RingLine {
  absl::Time time;
  LogSeverity severity = LogSeverity::kInfo;
  std::string text;
};

// The last lines of a process's log that have not been shipped yet. Thread-safe.
class LogRing {
 public:
  // Bounds of the ring, of one line (longer ones are truncated), and of the result of one Take.
  struct Limits {
    size_t max_lines = 2000;
    size_t max_line_bytes = 4096;
    size_t max_taken_bytes = 256 << 10;
  };
  struct Taken {
    std::vector<RingLine> lines;
    int64_t lost = 0;  // overwritten since the last Take
  };

  LogRing() : LogRing(Limits{}) {}
  explicit LogRing(const Limits& limits) : limits_(limits) {}
  // A full ring drops its oldest line.
  void Add(LogSeverity severity, absl::Time time, std::string_view text) ABSL_LOCKS_EXCLUDED(mu_);
  // Removes and returns the oldest lines, as many as max_taken_bytes allows.
  Taken Take() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const Limits limits_;
  Mutex mu_;
  std::deque<RingLine> lines_ ABSL_GUARDED_BY(mu_);
  int64_t lost_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_LOG_RING_H_
