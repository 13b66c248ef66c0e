#include "base/log_line.h"

#include <algorithm>

#include "base/str_cat.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

constexpr size_t kMaxKeyBytes = 40;

bool IsKeyChar(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; }

// Length of "KEY=" at `at`; 0 if there is none.
size_t KeyLength(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && end - at <= kMaxKeyBytes && IsKeyChar(text[end])) ++end;
  return end > at && end < text.size() && text[end] == '=' ? end - at + 1 : 0;
}

// Position of the space before the next key at or after `from`, or the end.
size_t EndOfValue(std::string_view text, size_t from) {
  for (size_t blank = text.find(' ', from); blank != std::string_view::npos;
       blank = text.find(' ', blank + 1)) {
    if (KeyLength(text, blank + 1) > 0) return blank;
  }
  return text.size();
}

// Position of the quote that closes the value opened at `from`, or the end.
size_t ClosingQuote(std::string_view text, size_t from) {
  for (size_t quote = text.find('"', from + 1); quote != std::string_view::npos;
       quote = text.find('"', quote + 1)) {
    if (quote + 1 == text.size() || text[quote + 1] == ' ') return quote;
  }
  return text.size();
}

std::string_view Trimmed(std::string_view text) {
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

bool NamesJob(std::string_view text) {
  if (text.find("job=") == std::string_view::npos) return false;
  const auto fields = ParseLogText(text);
  return std::any_of(fields.begin(), fields.end(),
                     [](const auto& field) { return field.first == "job"; });
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

std::string FormatJson(const LogLine& line) {
  nlohmann::ordered_json json;
  const auto add = [&json](std::string key, std::string value) {
    while (json.contains(key)) key += '_';
    json[key] = std::move(value);
  };
  const auto add_known = [&](const char* key, std::string_view value) {
    if (!value.empty()) add(key, std::string(value));
  };
  add("time", TimeText(line.time));
  add("level", LogSeverityName(line.severity));
  add_known("role", line.role);
  add_known("worker", line.worker);
  add_known("at", line.place);
  if (!NamesJob(line.text)) add_known("job", line.job);
  for (auto& [key, value] : ParseLogText(line.text)) add(key, std::move(value));
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> ParseLogText(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> fields;
  std::string message;
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == ' ') {
      ++at;
      continue;
    }
    const size_t key_length = KeyLength(text, at);
    if (key_length == 0) {
      const size_t end = EndOfValue(text, at);
      message += StrCat(message.empty() ? "" : " ", Trimmed(text.substr(at, end - at)));
      at = end;
      continue;
    }
    const std::string_view key = text.substr(at, key_length - 1);
    at += key_length;
    if (at < text.size() && text[at] == '"') {
      const size_t quote = ClosingQuote(text, at);
      fields.emplace_back(key, text.substr(at + 1, quote - at - 1));
      at = quote + 1;
    } else {
      const size_t end = EndOfValue(text, at);
      fields.emplace_back(key, Trimmed(text.substr(at, end - at)));
      at = end;
    }
  }
  if (!message.empty()) fields.emplace_back("message", std::move(message));
  return fields;
}

std::string FormatLogText(const LogLine& line) {
  std::string text = StrCat("at=", line.place, " ");
  if (!line.job.empty() && !NamesJob(line.text)) text += StrCat("job=", line.job, " ");
  text += line.text;
  std::replace_if(text.begin(), text.end(), IsControl, ' ');
  return text;
}

std::string FormatLogLine(const LogLine& line, LogFormat format) {
  if (format == LogFormat::kJson) return FormatJson(line);
  std::string text =
      StrCat("time=", TimeText(line.time), " level=", LogSeverityName(line.severity), " ");
  if (!line.role.empty()) text += StrCat("role=", line.role, " ");
  if (!line.worker.empty()) text += StrCat("worker=", line.worker, " ");
  return text + FormatLogText(line);
}

}  // namespace freshet
