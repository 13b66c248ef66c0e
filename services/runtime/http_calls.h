#ifndef FRESHET_SERVICES_RUNTIME_HTTP_CALLS_H_
#define FRESHET_SERVICES_RUNTIME_HTTP_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace freshet::runtime {

struct HttpCall {
  std::string method = "POST";
  std::string target{};                        // path and query
  std::string body{};                          // JSON; empty: none
  absl::Duration timeout = absl::Seconds(30);  // from the start to the end of the answer
  size_t max_bytes = 1 << 20;                  // of the answer's body
};

// What has happened to a call since its last event.
struct HttpCallEvent {
  int64_t call = 0;
  int status = 0;      // of the answer; 0: it has not begun
  std::string data{};  // the next bytes of the answer's body
  bool end = false;    // the call's last event
  // Set in the last event if the answer is incomplete.
  //   UNAVAILABLE: no connection, or it closed early.
  //   DEADLINE_EXCEEDED: HttpCall::timeout.
  //   RESOURCE_EXHAUSTED: more than HttpCall::max_bytes, or too many calls at once.
  //   INTERNAL: not HTTP.
  absl::Status error{};
};

// HTTP/1.1 calls to one server, any number of them at once, each on its own connection. Confined to
// one thread.
class HttpCalls {
 public:
  virtual ~HttpCalls() = default;
  // Starts a call and returns its number, above 0. Never blocks; errors are events.
  virtual int64_t Start(HttpCall call) = 0;
  // Closes the call's connection. It has no further events.
  virtual void Stop(int64_t call) = 0;
  // The events since the last Take, at most one per call, in the order of their numbers. If there
  // are none, waits for one, at most for `wait`.
  virtual std::vector<HttpCallEvent> Take(absl::Duration wait) = 0;
};

// A numeric address of a host, or why there is none. May block.
using HostLookup = std::function<absl::StatusOr<std::string>(const std::string& host)>;

// Calls to the server at `address`, HOST:PORT, on a thread of its own. `lookup` is called on
// another thread, one at a time; its result is for all calls that wait. The destructor waits for a
// look-up in progress. nullptr: the host is numeric or "localhost".
// INVALID_ARGUMENT: a bad address.
absl::StatusOr<std::unique_ptr<HttpCalls>> OpenHttpCalls(const std::string& address,
                                                         HostLookup lookup = nullptr);

}  // namespace freshet::runtime

#endif  // FRESHET_SERVICES_RUNTIME_HTTP_CALLS_H_
