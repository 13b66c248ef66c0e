#include "local/loaded_model.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/container_limits.h"
#include "base/status_macros.h"
#include "base/str_cat.h"

namespace freshet {

absl::StatusOr<LoadedModel> LoadModelDirectory(const std::string& directory, bool bf16) {
  LoadedModel model;
  FRESHET_ASSIGN_OR_RETURN(model.files, ModelFiles::Open(directory));
  std::string errors;
  for (const std::string& error : model.files->CheckTensors()) {
    errors += (errors.empty() ? "" : "\n") + error;
  }
  if (!errors.empty()) return InvalidArgument(errors);
  PolicyLearnerOptions options;
  options.model = model.config();
  options.bf16 = bf16;
  FRESHET_ASSIGN_OR_RETURN(model.learner,
                           PolicyLearner::Create(std::move(options), SystemClock::Get()));
  FRESHET_RETURN_IF_ERROR(model.learner->LoadModel(*model.files));
  return model;
}

absl::StatusOr<std::unique_ptr<NativeEngine>> MakeModelEngine(const LoadedModel& model,
                                                              const NativeEngineOptions& options) {
  FRESHET_ASSIGN_OR_RETURN(auto engine, NativeEngine::Create(model.config(), options));
  WeightSnapshot snapshot;
  snapshot.bytes = CopyWeightBytes(model.learner->Arena());
  FRESHET_RETURN_IF_ERROR(engine->LoadWeights(Lane::kRollout, snapshot));
  return engine;
}

NativeEngineOptions CommandEngineOptions(bool bf16, int threads) {
  const ContainerLimits limits = ReadContainerLimits();
  NativeEngineOptions options;
  options.bf16 = bf16;
  options.threads = threads;
  if (threads == 0) {
    const double machine = std::thread::hardware_concurrency();
    options.threads = std::max(1, static_cast<int>(std::min(limits.cpus.value_or(256), machine)));
  }
  options.cache_bytes = std::min(options.cache_bytes, limits.memory_bytes.value_or(INT64_MAX) / 4);
  return options;
}

}  // namespace freshet
