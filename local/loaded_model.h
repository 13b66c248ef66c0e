#ifndef FRESHET_LOCAL_LOADED_MODEL_H_
#define FRESHET_LOCAL_LOADED_MODEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/model_files.h"
#include "rollout/engine/native_engine.h"
#include "trainer/learner/policy_learner.h"

namespace freshet {

// The model of a Hugging Face directory, for commands that compute with it.
struct LoadedModel {
  std::unique_ptr<ModelFiles> files;
  std::unique_ptr<PolicyLearner> learner;  // owns the weights

  const ModelConfig& config() const { return files->config(); }
};

// INVALID_ARGUMENT, one line per error; also returns errors of ModelFiles.
absl::StatusOr<LoadedModel> LoadModelDirectory(const std::string& directory, bool bf16);

// Options of an engine for one command: `threads`, or with 0 the CPUs of the container or machine;
// a cache that its memory allows.
NativeEngineOptions CommandEngineOptions(bool bf16, int threads);

// An engine with a copy of the model's weights in the rollout lane.
absl::StatusOr<std::unique_ptr<NativeEngine>> MakeModelEngine(const LoadedModel& model,
                                                              const NativeEngineOptions& options);

}  // namespace freshet

#endif  // FRESHET_LOCAL_LOADED_MODEL_H_
