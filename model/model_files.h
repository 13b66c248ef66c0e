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

// A stored tensor of a model directory; the views live as long as the WeightFiles.
struct StoredTensor {
  std::string_view path;  // of the file that holds it
  Dtype dtype = Dtype::kF32;
  std::vector<int64_t> shape;
  std::string_view data;  // row-major, little-endian; may be unaligned: copy with memcpy
};

// The weights of a Hugging Face directory: model.safetensors, or the shards that
// model.safetensors.index.json lists. Thread-safe.
class WeightFiles {
 public:
  // Opens and checks every file.
  // Returns:
  //   NOT_FOUND: no such directory, or no weights in it.
  //   INVALID_ARGUMENT: only pickle files (convert them to safetensors); a broken or truncated
  //     file; an index that names a file outside of the directory, a shard that is missing, or a
  //     tensor that its shard does not hold. One line per error.
  //   Errors of DataRoots.
  static absl::StatusOr<std::unique_ptr<WeightFiles>> Open(
      const std::string& directory, const DataRoots& roots = DataRoots::Unlimited());

  // Null when there is none of that name. Lives as long as this object.
  const StoredTensor* Find(std::string_view name) const;
  // Every tensor by name.
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  // The file or the index, for messages.
  const std::string& path() const { return path_; }

 private:
  WeightFiles() = default;
  absl::Status OpenSingle(const std::string& path, const DataRoots& roots);
  absl::Status OpenShards(const std::string& directory, const std::string& index_path,
                          const DataRoots& roots);
  void AddTensor(const SafetensorsFile& file, const std::string& name, const TensorInfo& info);

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

// A tensor that a model must have.
struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
};

// The tensors of a model of that shape, named as transformers names them; lm_head.weight only when
// the head is not tied. `config` must be valid.
std::vector<ExpectedTensor> ExpectedTensors(const ModelConfig& config);

// A Hugging Face model directory: config and weights. Thread-safe.
class ModelFiles {
 public:
  // Returns the errors of LoadModelConfig and of WeightFiles::Open.
  static absl::StatusOr<std::unique_ptr<ModelFiles>> Open(
      const std::string& directory, const DataRoots& roots = DataRoots::Unlimited());

  const ModelConfig& config() const { return config_; }
  const WeightFiles& weights() const { return *weights_; }
  const StoredTensor* Find(std::string_view name) const { return weights_->Find(name); }

  // What is wrong with the weights, one line per error, each naming file and tensor: a tensor that
  // is missing, of another shape, of a dtype other than F32, BF16 and F16, or that holds NaN or
  // infinite values; one below "model." that a Llama model does not use (stored inverse rope
  // frequencies and the head of a tied model are harmless). Empty: the model can be loaded. Reads
  // every byte of the weights.
  std::vector<std::string> CheckTensors() const;

 private:
  ModelFiles(ModelConfig config, std::unique_ptr<WeightFiles> weights)
      : config_(std::move(config)), weights_(std::move(weights)) {}

  ModelConfig config_;
  std::unique_ptr<WeightFiles> weights_;
};

// Number of NaN or infinite elements in `data`, and the index of the first. 0 for integers.
struct NonFiniteCount {
  uint64_t count = 0;
  uint64_t first = 0;
};
NonFiniteCount CountNonFinite(Dtype dtype, std::string_view data);

}  // namespace freshet

#endif  // FRESHET_MODEL_MODEL_FILES_H_
