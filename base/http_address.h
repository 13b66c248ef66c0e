#ifndef FRESHET_BASE_HTTP_ADDRESS_H_
#define FRESHET_BASE_HTTP_ADDRESS_H_

#include <optional>
#include <string>
#include <string_view>

namespace freshet {

// Where HTTP requests go.
struct HttpAddress {
  std::string server;  // HOST:PORT, unchecked
  std::string path;    // begins with '/'
};

// Splits "HOST:PORT" or "http://HOST:PORT/PATH". nullopt: another scheme, no server, or a path with
// spaces, control characters, '?' or '#'.
inline std::optional<HttpAddress> ParseHttpAddress(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  const bool url = text.starts_with(kScheme);
  if (url) text.remove_prefix(kScheme.size());
  const size_t slash = text.find('/');
  if (slash == 0 || text.empty() || (!url && slash != std::string_view::npos)) return std::nullopt;
  HttpAddress address{std::string(text.substr(0, slash)), "/"};
  if (slash != std::string_view::npos) address.path = std::string(text.substr(slash));
  for (const char c : address.path) {
    if (c <= ' ' || c == 0x7F || c == '?' || c == '#') return std::nullopt;
  }
  return address;
}

}  // namespace freshet

#endif  // FRESHET_BASE_HTTP_ADDRESS_H_
