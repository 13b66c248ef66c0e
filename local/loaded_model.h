#ifndef FRESHET_LOCAL_LOADED_MODEL_H_
#define FRESHET_LOCAL_LOADED_MODEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "local/compute_options.h"
#include "model/model_files.h"
#include "rollout/engine/native_engine.h"

namespace freshet {

// Which models a command takes.
enum class ModelKinds { kGenerating, kAny };

// The files of a Hugging Face directory that this version can load. INVALID_ARGUMENT, one line per
// error; also returns errors of ModelFiles.
absl::StatusOr<std::unique_ptr<ModelFiles>> OpenModelDirectory(
    const std::string& directory, ModelKinds kinds = ModelKinds::kGenerating);

NativeEngineOptions CommandEngineOptions(const ComputeOptions& compute);

// An engine with the model's weights in the rollout lane. INVALID_ARGUMENT: the cache holds no
// sequence.
absl::StatusOr<std::unique_ptr<NativeEngine>> MakeModelEngine(const ModelFiles& files,
                                                              const NativeEngineOptions& options);

}  // namespace freshet

#endif  // FRESHET_LOCAL_LOADED_MODEL_H_
