#ifndef FRESHET_ROLLOUT_SERVICE_NATIVE_ENGINE_FACTORY_H_
#define FRESHET_ROLLOUT_SERVICE_NATIVE_ENGINE_FACTORY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "model/torch_threads.h"
#include "rollout/engine/native_engine.h"
#include "rollout/worker/rollout_setup.h"

namespace freshet {

// Creates the engine of a rollout process; see EngineFactory.
inline absl::StatusOr<std::unique_ptr<InferenceEngine>> MakeNativeEngine(
    const job::v1::JobSpec& spec, const ModelConfig& model) {
  UseOneTorchThread();
  const NativeEngineOptions options = MakeEngineOptions(spec, ReadContainerLimits());
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<NativeEngine> engine,
                           NativeEngine::Create(model, options));
  FRESHET_LOG(Info) << "event=kernels kernels=" << LogQuoted(engine->DescribeKernels());
  return engine;
}

}  // namespace freshet

#endif  // FRESHET_ROLLOUT_SERVICE_NATIVE_ENGINE_FACTORY_H_
