#ifndef FRESHET_ROLLOUT_ENGINE_ENGINE_CALL_H_
#define FRESHET_ROLLOUT_ENGINE_ENGINE_CALL_H_

#include <exception>
#include <string>

#include "absl/status/status.h"
#include "base/str_cat.h"

namespace freshet {

// Runs `call`, which returns a Status or a StatusOr. Exceptions of the engine (std::bad_alloc,
// c10::Error) become INTERNAL, so that a bad prompt does not crash the process.
template <typename Call>
auto CallEngine(Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& error) {
    return Internal("the engine failed: ", std::string(error.what()).substr(0, 300));
  }
}

// Whether an error of InferenceEngine::Submit is an engine failure rather than a rejected request.
inline bool IsEngineFailure(const absl::Status& submitted) {
  return !submitted.ok() && submitted.code() != absl::StatusCode::kInvalidArgument &&
         submitted.code() != absl::StatusCode::kResourceExhausted;
}

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_ENGINE_CALL_H_
