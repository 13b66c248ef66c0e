#include "base/log.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/log_line.h"
#include "base/mutex.h"
#include "base/str_cat.h"

namespace freshet {
namespace {

std::atomic<LogSeverity> min_severity{LogSeverity::kInfo};
std::atomic<LogFormat> log_format{LogFormat::kText};
thread_local const std::string* current_job = nullptr;

const char* BaseName(const char* file) {
  const char* slash = std::strrchr(file, '/');
  return slash == nullptr ? file : slash + 1;
}

struct SinkHolder {
  std::atomic<bool> present{false};  // skips the lock if there is no sink
  Mutex mu;
  LogSink sink ABSL_GUARDED_BY(mu);
};

struct Identity {
  Mutex mu;
  std::string role ABSL_GUARDED_BY(mu);
  std::string worker ABSL_GUARDED_BY(mu);
};

// Never destroyed: threads may log during process exit.
Identity& ThisProcess() {
  static auto* identity = new Identity;
  return *identity;
}

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

void SetLogFormat(LogFormat format) { log_format = format; }
LogFormat GetLogFormat() { return log_format; }

void SetLogRole(std::string role) {
  Identity& identity = ThisProcess();
  MutexLock lock(identity.mu);
  identity.role = std::move(role);
}

void SetLogWorker(std::string worker) {
  Identity& identity = ThisProcess();
  MutexLock lock(identity.mu);
  identity.worker = std::move(worker);
}

LogScope::LogScope(std::string job) : job_(std::move(job)), outer_(current_job) {
  current_job = &job_;
}

LogScope::~LogScope() { current_job = outer_; }

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

std::string LogQuoted(std::string_view text) {
  std::string quoted = StrCat("\"", text, "\"");
  std::replace(quoted.begin() + 1, quoted.end() - 1, '"', '\'');
  return quoted;
}

namespace log_internal {

Line::Line(LogSeverity severity, const char* file, int line)
    : severity_(severity), file_(file), line_(line), time_(absl::Now()) {}

Line::~Line() {
  if (severity_ < min_severity.load()) return;
  const std::string text = stream_.str();
  const std::string place = StrCat(BaseName(file_), ":", line_);
  LogLine line;
  line.time = time_;
  line.severity = severity_;
  line.place = place;
  line.text = text;
  if (current_job != nullptr) line.job = *current_job;
  CallSink(severity_, time_, FormatLogText(line));
  std::string role;
  std::string worker;
  {
    Identity& identity = ThisProcess();
    MutexLock lock(identity.mu);
    role = identity.role;
    worker = identity.worker;
  }
  line.role = role;
  line.worker = worker;
  const std::string written = FormatLogLine(line, log_format.load()) + "\n";
  std::fwrite(written.data(), 1, written.size(), stderr);
}

void CheckFailed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, expression);
  std::abort();
}

}  // namespace log_internal
}  // namespace freshet
