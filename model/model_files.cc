#include "model/model_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <unordered_set>

#include "base/json_document.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/parameter_layout.h"

namespace freshet {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
constexpr size_t kMaxShards = 4096;
constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";

absl::Status CheckDirectory(const std::string& path, const DataRoots& roots) {
  const absl::Status status = roots.Open(path, O_PATH | O_DIRECTORY).status();
  return absl::IsNotFound(status) ? NotFound(path, ": no such model directory") : status;
}

// The alphabetically first PyTorch pickle file in a directory; empty if there is none.
std::string FindPickle(const std::string& directory, const DataRoots& roots) {
  std::string found;
  const absl::StatusOr<UniqueFd> fd = roots.Open(directory, O_RDONLY | O_DIRECTORY);
  if (!fd.ok()) return found;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(::dup(fd->get())), ::closedir);
  if (dir == nullptr) return found;
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string name = entry->d_name;
    for (const char* end : {".bin", ".pt", ".pth", ".bin.index.json"}) {
      if (name.ends_with(end) && (found.empty() || name < found)) found = name;
    }
  }
  return found;
}

// Shards must be in the same directory.
bool IsShardName(const std::string& name) {
  return name.ends_with(".safetensors") && name.front() != '.' && name.size() <= 255 &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

std::string Quote(std::string_view name) { return JsonExcerpt(Json(std::string(name))); }

// Counts elements whose exponent bits are all set: NaN or infinite in any IEEE-like format.
template <typename Bits>
NonFiniteCount CountExponent(std::string_view data, Bits exponent) {
  NonFiniteCount found;
  const size_t num_elements = data.size() / sizeof(Bits);
  for (size_t i = 0; i < num_elements; ++i) {
    Bits bits;
    std::memcpy(&bits, data.data() + i * sizeof(Bits), sizeof(Bits));
    if ((bits & exponent) != exponent) continue;
    if (found.count++ == 0) found.first = i;
  }
  return found;
}

// Returns "" if the tensor can be loaded.
std::string TensorError(const ParameterEntry& expected, const StoredTensor& tensor) {
  if (tensor.shape != expected.shape) {
    return StrCat("has shape ", ShapeToString(tensor.shape), ", want ",
                  ShapeToString(expected.shape));
  }
  if (tensor.dtype != Dtype::kF32 && tensor.dtype != Dtype::kBf16 && tensor.dtype != Dtype::kF16) {
    return StrCat("dtype ", DtypeName(tensor.dtype),
                  " is not supported for weights; supported: F32, BF16, F16");
  }
  const NonFiniteCount found = CountNonFinite(tensor.dtype, tensor.data);
  if (found.count == 0) return "";
  return StrCat("holds ", found.count, " NaN or infinite values, the first at element ",
                found.first);
}

// Whether an unneeded tensor can be ignored without changing the model's output.
bool IsHarmlessExtra(std::string_view name, const ModelConfig& config) {
  if (config.scalar_head && name.starts_with("score.")) return false;
  if (name.ends_with(".rotary_emb.inv_freq") || name == "lm_head.weight") return true;
  return !name.starts_with("model.") && !name.starts_with("lm_head.");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelFiles>> ModelFiles::Open(const std::string& directory,
                                                             const DataRoots& roots) {
  FRESHET_RETURN_IF_ERROR(CheckDirectory(directory, roots));
  FRESHET_ASSIGN_OR_RETURN(ModelConfig config, LoadModelConfig(directory, roots));
  std::unique_ptr<ModelFiles> files(new ModelFiles(std::move(config)));
  const std::string single = StrCat(directory, "/", kSingleName);
  const std::string index = StrCat(directory, "/", kIndexName);
  if (roots.Exists(single)) {
    FRESHET_RETURN_IF_ERROR(files->OpenSingle(single, roots));
    return files;
  }
  if (roots.Exists(index)) {
    FRESHET_RETURN_IF_ERROR(files->OpenShards(directory, index, roots));
    return files;
  }
  if (const std::string pickle = FindPickle(directory, roots); !pickle.empty()) {
    return InvalidArgument(directory, "/", pickle, ": pickle files are not read, for they can run ",
                           "code; convert the model to safetensors");
  }
  return NotFound(directory, ": there is neither ", kSingleName, " nor ", kIndexName);
}

void ModelFiles::AddTensor(const SafetensorsFile& file, const std::string& name,
                           const TensorInfo& info) {
  tensors_[name] = {file.path(), info.dtype, info.shape, file.Data(info)};
}

absl::Status ModelFiles::OpenSingle(const std::string& path, const DataRoots& roots) {
  path_ = path;
  FRESHET_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file,
                           SafetensorsFile::Open(path, roots));
  for (const std::string& name : file->names()) AddTensor(*file, name, *file->Find(name));
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status ModelFiles::OpenShards(const std::string& directory, const std::string& index_path,
                                    const DataRoots& roots) {
  path_ = index_path;
  FRESHET_ASSIGN_OR_RETURN(const std::string text, roots.ReadFile(index_path, kMaxIndexBytes));
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseJson(text, index_path));
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object() || map->empty()) {
    return InvalidArgument(index_path, ": has no weight_map");
  }
  // Tensor names by shard.
  std::map<std::string, std::vector<std::string>> shards;
  std::vector<std::string> errors;
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string() || shard.get<std::string>().empty() ||
        !IsShardName(shard.get<std::string>())) {
      errors.push_back(StrCat(index_path, ": tensor ", Quote(name), " is in ", JsonExcerpt(shard),
                              ", want the name of a .safetensors file in the same directory"));
      continue;
    }
    shards[shard.get<std::string>()].push_back(name);
  }
  if (shards.size() > kMaxShards) {
    return InvalidArgument(index_path, ": lists ", shards.size(), " files, want at most ",
                           kMaxShards);
  }
  for (const auto& [shard, names] : shards) {
    auto file = SafetensorsFile::Open(StrCat(directory, "/", shard), roots);
    if (!file.ok()) {
      errors.push_back(Message(file.status()));
      continue;
    }
    for (const std::string& name : names) {
      if (const TensorInfo* info = (*file)->Find(name)) {
        AddTensor(**file, name, *info);
      } else {
        errors.push_back(StrCat((*file)->path(), ": tensor ", Quote(name), " is missing, though ",
                                kIndexName, " lists it there"));
      }
    }
    files_.push_back(*std::move(file));
  }
  return ErrorsToStatus(errors);
}

const StoredTensor* ModelFiles::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

NonFiniteCount CountNonFinite(Dtype dtype, std::string_view data) {
  switch (dtype) {
    case Dtype::kF32:
      return CountExponent<uint32_t>(data, 0x7F800000U);
    case Dtype::kBf16:
      return CountExponent<uint16_t>(data, 0x7F80U);
    case Dtype::kF16:
      return CountExponent<uint16_t>(data, 0x7C00U);
    default:
      return {};
  }
}

std::vector<std::string> ModelFiles::CheckTensors() const {
  std::vector<std::string> errors;
  std::unordered_set<std::string> expected_names;
  for (const ParameterEntry& expected : MakeParameterLayout(config_).entries) {
    expected_names.insert(expected.name);
    const StoredTensor* tensor = Find(expected.name);
    if (tensor == nullptr) {
      errors.push_back(StrCat(path_, ": tensor ", Quote(expected.name), " is missing"));
      continue;
    }
    const std::string error = TensorError(expected, *tensor);
    if (error.empty()) continue;
    errors.push_back(StrCat(tensor->path, ": tensor ", Quote(expected.name), " ", error));
  }
  for (const auto& [name, tensor] : tensors_) {
    if (expected_names.count(name) > 0 || IsHarmlessExtra(name, config_)) continue;
    errors.push_back(StrCat(tensor.path, ": tensor ", Quote(name), " is not part of a ",
                            config_.model_type, " model of this config"));
  }
  return errors;
}

}  // namespace freshet
