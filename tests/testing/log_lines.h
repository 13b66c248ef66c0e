#ifndef FRESHET_TESTS_TESTING_LOG_LINES_H_
#define FRESHET_TESTS_TESTING_LOG_LINES_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"

namespace freshet {

// Captures the log of the process while it exists. Only one may exist at a time. Thread-safe.
class LogLines {
 public:
  LogLines() {
    SetLogSink([this](LogSeverity, absl::Time, std::string_view text) {
      MutexLock lock(mu_);
      lines_.emplace_back(text);
    });
  }
  ~LogLines() { SetLogSink(nullptr); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  // Lines that contain `text`, without their source location.
  std::vector<std::string> With(std::string_view text) const ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<std::string> found;
    MutexLock lock(mu_);
    for (const std::string& line : lines_) {
      if (line.find(text) != std::string::npos) found.push_back(line.substr(line.find(' ') + 1));
    }
    return found;
  }

 private:
  mutable Mutex mu_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
};

}  // namespace freshet

#endif  // FRESHET_TESTS_TESTING_LOG_LINES_H_
