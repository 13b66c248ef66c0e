#include "services/base/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/base/mutex.h"

namespace freshet {
namespace {

std::atomic<LogSeverity> min_severity{LogSeverity::kInfo};

const char* BaseName(const char* file) {
  const char* slash = std::strrchr(file, '/');
  return slash == nullptr ? file : slash + 1;
}

struct SinkHolder {
  std::atomic<bool> present{false};  // spares the lock where nobody listens
  Mutex mu;
  LogSink sink ABSL_GUARDED_BY(mu);
};

// Never destroyed: threads may log while the process ends.
SinkHolder& Holder() {
  static auto* holder = new SinkHolder;
  return *holder;
}

void CallSink(LogSeverity severity, absl::Time time, std::string_view text) {
  thread_local bool inside = false;
  SinkHolder& holder = Holder();
  if (inside || !holder.present) return;
  inside = true;
  {
    MutexLock lock(holder.mu);
    if (holder.sink) holder.sink(severity, time, text);
  }
  inside = false;
}

}  // namespace

void SetMinLogSeverity(LogSeverity severity) { min_severity = severity; }

void SetLogSink(LogSink sink) {
  SinkHolder& holder = Holder();
  MutexLock lock(holder.mu);
  holder.sink = std::move(sink);
  holder.present = static_cast<bool>(holder.sink);
}

const char* LogSeverityName(LogSeverity severity) {
  switch (severity) {
    case LogSeverity::kInfo:
      return "info";
    case LogSeverity::kWarning:
      return "warning";
    case LogSeverity::kError:
      return "error";
  }
  return "?";
}

namespace log_internal {

Line::Line(LogSeverity severity, const char* file, int line)
    : severity_(severity), time_(absl::Now()) {
  const std::string prefix =
      "time=" + absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time_, absl::UTCTimeZone()) +
      " level=" + LogSeverityName(severity) + " ";
  prefix_ = prefix.size();
  stream_ << prefix << "at=" << BaseName(file) << ":" << line << " ";
}

Line::~Line() {
  if (severity_ < min_severity.load()) return;
  std::string text = stream_.str();
  CallSink(severity_, time_, std::string_view(text).substr(prefix_));
  text += "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void CheckFailed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, expression);
  std::abort();
}

}  // namespace log_internal
}  // namespace freshet
