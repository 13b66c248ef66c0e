#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_BUFFERED_CALLS_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_BUFFERED_CALLS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/str_cat.h"
#include "rollout/server_engine/server_answer.h"
#include "services/runtime/http_calls.h"

namespace freshet {

// Calls of which some are waited for. Events of the others are kept for Take. Confined to one
// thread.
class BufferedCalls {
 public:
  explicit BufferedCalls(runtime::HttpCalls& calls) : calls_(calls) {}

  int64_t Start(runtime::HttpCall call) { return calls_.Start(std::move(call)); }
  void Stop(int64_t call) {
    std::erase_if(kept_,
                  [call](const runtime::HttpCallEvent& event) { return event.call == call; });
    calls_.Stop(call);
  }

  // Waits for the whole answer, at most for its timeout, and returns the body. Errors of
  // HttpCallEvent, and of HttpError unless the status is 200. `failed`, unless null, is asked every
  // 10 ms: an error of it stops the call and is returned.
  absl::StatusOr<std::string> Await(runtime::HttpCall call,
                                    const std::function<absl::Status()>& failed = nullptr) {
    const std::string what = call.target.substr(0, call.target.find('?'));
    const absl::Duration wait = failed == nullptr ? call.timeout : absl::Milliseconds(10);
    const int64_t number = calls_.Start(std::move(call));
    std::string body;
    while (true) {
      bool end = false;
      int status = 0;
      absl::Status error;
      for (runtime::HttpCallEvent& event : calls_.Take(wait)) {
        if (event.call != number) {
          kept_.push_back(std::move(event));
          continue;
        }
        body += event.data;
        status = event.status;
        error = std::move(event.error);
        end = event.end;
      }
      if (!end) {
        const absl::Status other = failed == nullptr ? absl::OkStatus() : failed();
        if (other.ok()) continue;
        Stop(number);
        return other;
      }
      if (!error.ok()) return StatusOf(error.code(), what, ": ", Message(error));
      if (status != 200) return HttpError(what, status, body);
      return body;
    }
  }

  std::vector<runtime::HttpCallEvent> Take(absl::Duration wait) {
    if (!kept_.empty()) return std::exchange(kept_, {});
    return calls_.Take(wait);
  }

 private:
  runtime::HttpCalls& calls_;
  std::vector<runtime::HttpCallEvent> kept_;
};

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_BUFFERED_CALLS_H_
