#ifndef FRESHET_ROLLOUT_SERVER_ENGINE_CALL_BESIDE_H_
#define FRESHET_ROLLOUT_SERVER_ENGINE_CALL_BESIDE_H_

#include "absl/status/status.h"
#include "rollout/server_engine/buffered_calls.h"
#include "rollout/server_engine/server_protocol.h"

namespace freshet {

// Makes the call of a step and does what the step has `beside` it, on another thread and with the
// call's timeout. Returns when both have ended. The first of the two that fails ends the other one,
// by `stop` or by closing the connection, and its error is returned; both errors, if the other one
// has failed, too. `beside` must return at its timeout, and soon after `stop`, with ABORTED.
absl::Status RunBeside(BufferedCalls& calls, ControlStep step);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVER_ENGINE_CALL_BESIDE_H_
