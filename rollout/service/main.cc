#include <memory>

#include "model/torch_threads.h"
#include "rollout/native_engine.h"
#include "rollout/rollout_setup.h"
#include "rollout/service/rollout_process.h"
#include "services/base/status_macros.h"

namespace {

absl::StatusOr<std::unique_ptr<freshet::InferenceEngine>> MakeEngine(
    const freshet::job::v1::JobSpec& spec, const freshet::ModelConfig& model) {
  freshet::UseOneTorchThread();
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<freshet::NativeEngine> engine,
                           freshet::NativeEngine::Create(model, freshet::MakeEngineOptions(spec)));
  return engine;
}

}  // namespace

int main(int argc, char** argv) { return freshet::RunRolloutProcess(argc, argv, MakeEngine); }
