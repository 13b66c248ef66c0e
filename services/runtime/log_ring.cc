#include "services/runtime/log_ring.h"

#include <utility>

namespace freshet::runtime {

void LogRing::Add(LogSeverity severity, absl::Time time, std::string_view text) {
  RingLine line{time, severity, std::string(text.substr(0, limits_.max_line_bytes))};
  MutexLock lock(mu_);
  if (lines_.size() >= limits_.max_lines) {
    lines_.pop_front();
    ++lost_;
  }
  lines_.push_back(std::move(line));
}

LogRing::Taken LogRing::Take() {
  Taken taken;
  MutexLock lock(mu_);
  taken.lost = std::exchange(lost_, 0);
  size_t bytes = 0;
  while (!lines_.empty()) {
    bytes += lines_.front().text.size();
    if (!taken.lines.empty() && bytes > limits_.max_taken_bytes) break;
    taken.lines.push_back(std::move(lines_.front()));
    lines_.pop_front();
  }
  return taken;
}

}  // namespace freshet::runtime
