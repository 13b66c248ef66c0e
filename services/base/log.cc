#include "services/base/log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace freshet {
namespace {

std::atomic<LogSeverity> min_severity{LogSeverity::kInfo};

const char* Name(LogSeverity severity) {
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

const char* BaseName(const char* file) {
  const char* slash = std::strrchr(file, '/');
  return slash == nullptr ? file : slash + 1;
}

}  // namespace

void SetMinLogSeverity(LogSeverity severity) { min_severity = severity; }

namespace log_internal {

Line::Line(LogSeverity severity, const char* file, int line) : severity_(severity) {
  stream_ << "time=" << absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone())
          << " level=" << Name(severity) << " at=" << BaseName(file) << ":" << line << " ";
}

Line::~Line() {
  if (severity_ < min_severity.load()) return;
  stream_ << "\n";
  const std::string text = stream_.str();
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void CheckFailed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, expression);
  std::abort();
}

}  // namespace log_internal
}  // namespace freshet
