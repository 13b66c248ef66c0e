#ifndef FRESHET_MODEL_MODEL_FILES_H_
#define FRESHET_MODEL_MODEL_FILES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/dtype.h"
#include "model/model_config.h"
#include "model/safetensors.h"

namespace freshet {

// A stored tensor of a model directory. The views are valid as long as the ModelFiles.
struct StoredTensor {
  std::string_view path;  // of the containing file
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::string_view data;  // row-major, little-endian; may be unaligned: use memcpy
};

// A Hugging Face model directory: config and weights, which are in model.safetensors, or in the
// shards listed in model.safetensors.index.json. Thread-safe.
class ModelFiles {
 public:
  // Opens and checks all files.
  // Returns:
  //   NOT_FOUND: no such directory, or no config or weights in it.
  //   INVALID_ARGUMENT, one line per error: only pickle files (convert them to safetensors); a
  //     corrupt or truncated file; an index that names a file outside the directory, a missing
  //     shard, or a tensor that its shard lacks; errors of LoadModelConfig.
  //   Errors of DataRoots.
  static absl::StatusOr<std::unique_ptr<ModelFiles>> Open(
      const std::string& directory, const DataRoots& roots = DataRoots::Unlimited());

  const ModelConfig& config() const { return config_; }
  // Null if there is none. Valid as long as this object.
  const StoredTensor* Find(std::string_view name) const;
  // Path of the weights' file or index, for messages.
  const std::string& path() const { return path_; }

  // Errors in the weights, one line each with file and tensor: tensors that are missing, have
  // another shape, a dtype other than F32, BF16 and F16, or NaN or infinite values; and unknown
  // tensors below "model." (stored inverse rope frequencies and the head of a tied model are
  // ignored). Empty if the model can be loaded. Reads all weight bytes.
  std::vector<std::string> CheckTensors() const;

 private:
  explicit ModelFiles(ModelConfig config) : config_(std::move(config)) {}
  absl::Status OpenSingle(const std::string& path, const DataRoots& roots);
  absl::Status OpenShards(const std::string& directory, const std::string& index_path,
                          const DataRoots& roots);
  void AddTensor(const SafetensorsFile& file, const std::string& name, const TensorInfo& info);

  const ModelConfig config_;
  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

// Number of NaN or infinite elements of F32, BF16 or F16 in `data`, and index of the first.
struct NonFiniteCount {
  uint64_t count = 0;
  uint64_t first = 0;
};
NonFiniteCount CountNonFinite(Dtype dtype, std::string_view data);

}  // namespace freshet

#endif  // FRESHET_MODEL_MODEL_FILES_H_
