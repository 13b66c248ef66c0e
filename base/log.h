#ifndef FRESHET_BASE_LOG_H_
#define FRESHET_BASE_LOG_H_

#include <functional>
#include <sstream>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace freshet {

enum class LogSeverity { kInfo, kWarning, kError };

// How lines are written: words KEY=VALUE, or a JSON object each.
enum class LogFormat { kText, kJson };

// Lines below `severity` are not written. Thread-safe.
void SetMinLogSeverity(LogSeverity severity);
// kText unless it is set. Thread-safe.
void SetLogFormat(LogFormat format);
// What every line from now on names: the role of this process, and its name in the cluster. Not
// named while they are "". Thread-safe.
void SetLogRole(std::string role);
void SetLogWorker(std::string worker);

// Gets every line that is written, too: its text without time, level, role and worker, whatever the
// format. Called by the thread that
// logs, one call at a time; what it logs itself does not come back to it.
using LogSink = std::function<void(LogSeverity severity, absl::Time time, std::string_view text)>;
// Replaces the former sink; null: none. The former one is not called after the return. Thread-safe.
void SetLogSink(LogSink sink);
// "info", "warning" or "error".
const char* LogSeverityName(LogSeverity severity);

// While it lives, the lines of its thread name this job, those aside that name one themselves. The
// newest scope of a thread counts. Belongs to the thread that made it.
class LogScope {
 public:
  explicit LogScope(std::string job);
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

 private:
  const std::string job_;
  const std::string* const outer_;
};

// "TEXT", with ' for each " within: a value that ends where it ends. For what comes from elsewhere,
// such as the error of another process, and must not name keys of its own.
std::string LogQuoted(std::string_view text);

namespace log_internal {

// Collects one line and writes it to stderr when it goes out of scope.
class Line {
 public:
  Line(LogSeverity severity, const char* file, int line);
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;
  template <typename T>
  Line& operator<<(const T& value) {
    stream_ << value;
    return *this;
  }

 private:
  const LogSeverity severity_;
  const char* const file_;
  const int line_;
  const absl::Time time_;
  std::ostringstream stream_;
};

[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);

}  // namespace log_internal
}  // namespace freshet

// FRESHET_LOG(Info) << "event=step step=" << step << " reason=" << LogQuoted(reason);  one line on
// stderr, made of words KEY=VALUE. A value goes to the next key; quote one that may hold such
// words.
#define FRESHET_LOG(severity) \
  ::freshet::log_internal::Line(::freshet::LogSeverity::k##severity, __FILE__, __LINE__)

// Ends the process when an invariant of our own is broken. Never for input.
#define FRESHET_CHECK(expression)                                            \
  do {                                                                       \
    if (!(expression)) {                                                     \
      ::freshet::log_internal::CheckFailed(__FILE__, __LINE__, #expression); \
    }                                                                        \
  } while (false)

#endif  // FRESHET_BASE_LOG_H_
