#ifndef FRESHET_ROLLOUT_ENGINE_REQUEST_CHECK_H_
#define FRESHET_ROLLOUT_ENGINE_REQUEST_CHECK_H_

#include "absl/status/status.h"
#include "model/model_config.h"
#include "rollout/engine/inference_engine.h"

namespace freshet {

// INVALID_ARGUMENT for a request that an engine of this model cannot serve under any load.
absl::Status CheckRequest(const GenerationRequest& request, const ModelConfig& config);

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_ENGINE_REQUEST_CHECK_H_
