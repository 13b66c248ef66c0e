#ifndef FRESHET_SERVICES_HTTP_HTTP_CLIENT_H_
#define FRESHET_SERVICES_HTTP_HTTP_CLIENT_H_

#include <cstddef>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/time/time.h"

namespace freshet {

struct HttpCall {
  std::string method;  // "GET", "PATCH" or "POST"
  std::string path;    // with the leading slash, escaped
  std::string content_type;
  std::string body;
  absl::Duration deadline = absl::Seconds(5);
  size_t max_reply_bytes = size_t{1} << 20;
  std::stop_token cancel = {};  // ends the call with CANCELLED, within a second
};

struct HttpReply {
  int status = 0;
  std::string body;
};

// Marks the error of a call of which no byte was sent.
inline absl::Status NothingSent(absl::Status status) {
  status.SetPayload("freshet/nothing_sent", absl::Cord("1"));
  return status;
}
inline bool IsNothingSent(const absl::Status& status) {
  return status.GetPayload("freshet/nothing_sent").has_value();
}

// Calls to one HTTP server. Thread-safe.
//
// Errors: DEADLINE_EXCEEDED; CANCELLED; UNAVAILABLE: cannot connect, or the connection broke;
// PERMISSION_DENIED: the server's certificate does not match; DATA_LOSS: the reply is too large or
// not HTTP; FAILED_PRECONDITION: the client's own files are unusable. Marked with NothingSent if
// the server got nothing of the call, such as when it cannot be connected to.
class HttpClient {
 public:
  virtual ~HttpClient() = default;
  // Any HTTP status is a reply; redirects are not followed.
  virtual absl::StatusOr<HttpReply> Send(const HttpCall& call) = 0;
};

}  // namespace freshet

#endif  // FRESHET_SERVICES_HTTP_HTTP_CLIENT_H_
