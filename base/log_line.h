#ifndef FRESHET_BASE_LOG_LINE_H_
#define FRESHET_BASE_LOG_LINE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/log.h"

namespace freshet {

// One log line before formatting. Empty parts are omitted.
struct LogLine {
  absl::Time time;
  LogSeverity severity = LogSeverity::kInfo;
  std::string_view role;    // process role
  std::string_view worker;  // worker name in the cluster
  std::string_view place;   // "file.cc:12"
  std::string_view job;     // omitted if `text` has a `job` key
  std::string_view text;    // KEY=VALUE words
};

// Parses a line's text into fields, in order. A value extends to the next key; a quoted value
// extends to its closing quote, or to the end of the text. Words without a key become the last
// field, `message`.
std::vector<std::pair<std::string, std::string>> ParseLogText(std::string_view text);

// Formats the line without a newline.
//   kText: time=... level=... role=... worker=... at=PLACE job=... TEXT
//   kJson: one object of strings with the same keys plus those of TEXT. A duplicate key gets a '_'
//   suffix.
std::string FormatLogLine(const LogLine& line, LogFormat format);
// The text form after time, level, role and worker. ASCII control characters become spaces.
std::string FormatLogText(const LogLine& line);

}  // namespace freshet

#endif  // FRESHET_BASE_LOG_LINE_H_
