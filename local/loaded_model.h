#ifndef FRESHET_LOCAL_LOADED_MODEL_H_
#define FRESHET_LOCAL_LOADED_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/model_files.h"
#include "rollout/engine/native_engine.h"

namespace freshet {

// The files of a Hugging Face directory that this version can load. INVALID_ARGUMENT, one line per
// error; also returns errors of ModelFiles.
absl::StatusOr<std::unique_ptr<ModelFiles>> OpenModelDirectory(const std::string& directory);

// Options of an engine for one command: `threads`, or with 0 the CPUs of the container or machine;
// `kv_cache_bytes`, or with 0 what its memory allows.
NativeEngineOptions CommandEngineOptions(const std::string& dtype, int threads,
                                         int64_t kv_cache_bytes = 0);

// An engine with the model's weights in the rollout lane. INVALID_ARGUMENT: the cache holds no
// sequence.
absl::StatusOr<std::unique_ptr<NativeEngine>> MakeModelEngine(const ModelFiles& files,
                                                              const NativeEngineOptions& options);

}  // namespace freshet

#endif  // FRESHET_LOCAL_LOADED_MODEL_H_
