#ifndef FRESHET_BASE_LOG_H_
#define FRESHET_BASE_LOG_H_

#include <functional>
#include <sstream>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace freshet {

enum class LogSeverity { kInfo, kWarning, kError };

// KEY=VALUE words, or one JSON object per line.
enum class LogFormat { kText, kJson };

// Drops lines below `severity`. Thread-safe.
void SetMinLogSeverity(LogSeverity severity);
// Default: kText. Thread-safe.
void SetLogFormat(LogFormat format);
LogFormat GetLogFormat();
// Role and cluster name of this process, added to every later line. "" adds nothing. Thread-safe.
void SetLogRole(std::string role);
void SetLogWorker(std::string worker);

// Receives every line that is written, as text without time, level, role and worker. Called by the
// logging thread, one call at a time. Lines that the sink itself logs are not passed to it.
using LogSink = std::function<void(LogSeverity severity, absl::Time time, std::string_view text)>;
// Replaces the sink; null removes it. The previous sink is not called after the return.
// Thread-safe.
void SetLogSink(LogSink sink);
// "info", "warning" or "error".
const char* LogSeverityName(LogSeverity severity);

// While it exists, lines logged by this thread carry the job, unless they set `job=` themselves.
// Scopes nest; the innermost counts. Must be destroyed on the thread that created it.
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

// `text` in double quotes, with each " inside replaced by '. Use it for external text, such as
// another process's error, so that it cannot add keys to the line.
std::string LogQuoted(std::string_view text);

namespace log_internal {

// Collects one line and writes it to stderr on destruction.
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

// Writes one line of KEY=VALUE words to stderr:
//   FRESHET_LOG(Info) << "event=step step=" << step << " reason=" << LogQuoted(reason);
// A value extends to the next key, so quote values that may contain KEY=VALUE words.
#define FRESHET_LOG(severity) \
  ::freshet::log_internal::Line(::freshet::LogSeverity::k##severity, __FILE__, __LINE__)

// Aborts the process if an internal invariant is broken. Never use it to check input.
#define FRESHET_CHECK(expression)                                            \
  do {                                                                       \
    if (!(expression)) {                                                     \
      ::freshet::log_internal::CheckFailed(__FILE__, __LINE__, #expression); \
    }                                                                        \
  } while (false)

#endif  // FRESHET_BASE_LOG_H_
