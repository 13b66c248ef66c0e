#include "local/loaded_model.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/container_limits.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/model_weights.h"

namespace freshet {
namespace {

// The smallest format in which the engine needs the weights. Int8 is rounded from what is stored.
Dtype ArenaDtypeOf(const ModelFiles& files, const ParameterLayout& layout,
                   const NativeEngineOptions& options) {
  const bool stored = std::ranges::all_of(layout.entries, [&](const ParameterEntry& entry) {
    const StoredTensor* tensor = files.Find(entry.name);
    return tensor != nullptr && tensor->dtype == Dtype::kBf16;
  });
  return options.bf16 && (stored || !options.int8_weights) ? Dtype::kBf16 : Dtype::kF32;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFiles>> OpenModelDirectory(const std::string& directory,
                                                               ModelKinds kinds) {
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<ModelFiles> files, ModelFiles::Open(directory));
  if (kinds == ModelKinds::kGenerating) {
    FRESHET_RETURN_IF_ERROR(files->config().CheckGenerates(directory));
  }
  std::string errors;
  for (const std::string& error : files->CheckTensors()) {
    errors += (errors.empty() ? "" : "\n") + error;
  }
  if (!errors.empty()) return InvalidArgument(errors);
  return files;
}

absl::StatusOr<std::unique_ptr<NativeEngine>> MakeModelEngine(const ModelFiles& files,
                                                              const NativeEngineOptions& options) {
  FRESHET_ASSIGN_OR_RETURN(auto engine, NativeEngine::Create(files.config(), options));
  if (engine->context() < 2) {
    return InvalidArgument("a KV cache of ", options.cache_bytes,
                           " bytes does not hold 2 tokens: give a larger --kv-cache-bytes");
  }
  const ParameterLayout layout = MakeParameterLayout(files.config());
  const Dtype dtype = ArenaDtypeOf(files, layout, options);
  std::vector<std::byte> bytes(static_cast<size_t>(layout.num_elements) * DtypeBytes(dtype));
  FRESHET_RETURN_IF_ERROR(
      FillArena(files, layout,
                at::from_blob(bytes.data(), {layout.num_elements},
                              dtype == Dtype::kBf16 ? at::kBFloat16 : at::kFloat)));
  FRESHET_RETURN_IF_ERROR(engine->LoadWeights(
      Lane::kRollout, WeightSnapshot{.manifest = {}, .bytes = MakeWeightBytes(std::move(bytes))}));
  return engine;
}

NativeEngineOptions CommandEngineOptions(const ComputeOptions& compute) {
  const ContainerLimits limits = ReadContainerLimits();
  NativeEngineOptions options;
  options.bf16 = compute.dtype != "fp32";
  options.int8_weights = compute.dtype == "int8";
  options.device = compute.device;
  options.threads = compute.threads > 0 ? compute.threads : UsableProcessors(limits);
  if (compute.device == "cpu") {
    options.cache_bytes =
        std::min(options.cache_bytes, limits.memory_bytes.value_or(INT64_MAX) / 4);
  }
  if (compute.kv_cache_bytes > 0) options.cache_bytes = compute.kv_cache_bytes;
  return options;
}

}  // namespace freshet
