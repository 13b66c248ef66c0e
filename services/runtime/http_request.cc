#include "services/runtime/http_request.h"

#include <algorithm>
#include <cctype>

namespace freshet::runtime {
namespace {

HttpParse Refuse(int status) { return {HttpParse::State::kRefused, {}, status}; }

bool IsTokenChar(char c) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || kMarks.find(c) != kMarks.npos;
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}

// Visible ASCII.
bool IsTarget(std::string_view text) {
  return !text.empty() && text.front() == '/' &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Takes the first line, without its end, off `text`.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = text.find("\r\n");
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == text.npos ? text.size() : end + 2);
  return line;
}

// 0, or the status with which a header is refused. Keeps those that a request has.
int TakeHeader(std::string_view line, HttpRequest& request) {
  const size_t colon = line.find(':');
  if (colon == line.npos || !IsToken(line.substr(0, colon))) return 400;
  const std::string name = Lower(line.substr(0, colon));
  const std::string_view value = Trim(line.substr(colon + 1));
  for (const char c : value) {
    if ((c >= 0 && c < ' ' && c != '\t') || c == '\x7f') return 400;
  }
  if (name == "content-length" && value != "0") return 413;
  if (name == "transfer-encoding") return 413;
  if (name == "host") {
    if (!request.host.empty()) return 400;  // which of two is meant, nobody can say
    request.host = std::string(value);
  }
  return 0;
}

}  // namespace

HttpParse ParseHttpRequest(std::string_view bytes, size_t max_bytes) {
  const size_t end = bytes.substr(0, max_bytes).find("\r\n\r\n");
  if (end == bytes.npos) {
    if (bytes.size() >= max_bytes) return Refuse(431);
    // Something else than HTTP is not waited for: the method is at most 16 letters.
    const std::string_view method = bytes.substr(0, bytes.find(' '));
    if (method.size() > 16 || (!method.empty() && !IsToken(method))) return Refuse(400);
    return {};
  }
  std::string_view head = bytes.substr(0, end);
  const std::string_view line = TakeLine(head);
  const size_t first = line.find(' ');
  const size_t second = first == line.npos ? line.npos : line.find(' ', first + 1);
  if (second == line.npos) return Refuse(400);
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  if (!IsToken(method) || !version.starts_with("HTTP/")) return Refuse(400);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return Refuse(505);
  if (!IsTarget(target)) return Refuse(400);
  HttpParse parse{HttpParse::State::kComplete, {}, 0};
  while (!head.empty()) {
    if (const int status = TakeHeader(TakeLine(head), parse.request); status != 0) {
      return Refuse(status);
    }
  }
  if (method != "GET" && method != "HEAD") return Refuse(405);
  parse.request.head = method == "HEAD";
  const size_t question = target.find('?');
  parse.request.path = std::string(target.substr(0, question));
  if (question != target.npos) parse.request.query = std::string(target.substr(question + 1));
  return parse;
}

const char* HttpReason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "Internal Server Error";
  }
}

}  // namespace freshet::runtime
