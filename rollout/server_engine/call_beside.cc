#include "rollout/server_engine/call_beside.h"

#include <string>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/str_cat.h"

namespace freshet {

absl::Status RunBeside(BufferedCalls& calls, ControlStep step) {
  absl::Status worked;  // written before `done`
  Notification done;
  std::jthread thread([&, timeout = step.call.timeout](const std::stop_token& stop) {
    worked = step.beside(timeout, stop);
    done.Notify();
  });
  const absl::StatusOr<std::string> body = calls.Await(
      std::move(step.call), [&] { return done.HasBeenNotified() ? worked : absl::OkStatus(); });
  absl::Status answered = body.status();
  if (body.ok() && step.check != nullptr) answered = step.check(*body);
  if (!answered.ok()) thread.request_stop();
  thread.join();
  if (answered.ok()) return worked;
  if (worked.ok() || absl::IsAborted(worked) || worked == answered) return answered;
  return StatusOf(answered.code(), Message(answered), "; ", Message(worked));
}

}  // namespace freshet
