#ifndef FRESHET_SERVICES_RUNTIME_HTTP_REQUEST_H_
#define FRESHET_SERVICES_RUNTIME_HTTP_REQUEST_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace freshet::runtime {

struct HttpRequest {
  bool head = false;    // HEAD instead of GET
  std::string path;     // without the query
  std::string query{};  // after the '?', without it
  std::string host{};   // header Host; "" without one
};

// What the bytes received so far are.
struct HttpParse {
  enum class State { kIncomplete, kComplete, kRefused };
  State state = State::kIncomplete;
  HttpRequest request;  // when complete
  int status = 0;       // when refused: 400, 405, 413, 431 or 505
};

// Reads the head of one HTTP/1.0 or 1.1 request from its first bytes; what follows it is ignored. A
// request with a body is refused. Pure; takes any bytes.
HttpParse ParseHttpRequest(std::string_view bytes, size_t max_bytes);

// "Not Found" for 404 and so on.
const char* HttpReason(int status);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_HTTP_REQUEST_H_
