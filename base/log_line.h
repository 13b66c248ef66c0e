#ifndef FRESHET_BASE_LOG_LINE_H_
#define FRESHET_BASE_LOG_LINE_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/log.h"

namespace freshet {

// One line of the log, before it is written. Empty parts are left out.
struct LogLine {
  absl::Time time;
  LogSeverity severity = LogSeverity::kInfo;
  std::string_view role;    // of the process
  std::string_view worker;  // its name in the cluster
  std::string_view place;   // "file.cc:12"
  std::string_view job;     // unless a key of `text` names one
  std::string_view text;    // words KEY=VALUE
};

// The fields of a line's text, in their order. A value goes to the next key; one that begins with a
// quote to the closing quote, or to the end where there is none. What belongs to no key is the
// field `message`, at the end.
std::vector<std::pair<std::string, std::string>> ParseLogText(std::string_view text);

// The line without its newline.
//   kText: time=... level=... role=... worker=... at=PLACE job=... TEXT
//   kJson: one object of strings, with the same keys and those of the text. A key that is taken
//   gets a '_' at its end.
std::string FormatLogLine(const LogLine& line, LogFormat format);
// What follows time, level, role and worker in the text form. Control characters of ASCII are
// blanks: a line stays a line, and a terminal shows it as it is.
std::string FormatLogText(const LogLine& line);

}  // namespace freshet

#endif  // FRESHET_BASE_LOG_LINE_H_
