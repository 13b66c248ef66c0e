#include "rollout/server_engine/weights_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/digest.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/dtype.h"
#include "model/model_files.h"
#include "model/safetensors.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kShardElements = int64_t{1} << 28;  // 512 MiB of bf16 are in memory at once
constexpr char kWeights[] = "weights-";
// Only a folder with this file is cleared of weights and links of former processes.
constexpr char kMarker[] = ".freshet-engine";
constexpr char kUnfinished[] = ".weights-";

absl::Status FileError(const std::string& path, const std::error_code& error) {
  if (error.value() == ENOSPC || error.value() == EDQUOT) {
    return ResourceExhausted(path, ": ", error.message());
  }
  return FailedPrecondition(path, ": ", error.message());
}

std::string ConfigJson(const ModelConfig& model) {
  ModelConfig written = model;
  written.dtype = Dtype::kBf16;
  return written.ToJson();
}

std::string_view BytesOf(const WeightSnapshot& snapshot, const WeightEntry& entry, Dtype dtype,
                         int64_t elements) {
  const auto* data = reinterpret_cast<const char*>(snapshot.bytes->data());
  return {data + entry.offset_bytes, static_cast<size_t>(elements) * DtypeBytes(dtype)};
}

// Appends the elements of `bytes` as bf16.
void AppendBf16(std::string_view bytes, Dtype dtype, std::vector<uint16_t>& out) {
  const size_t begin = out.size();
  out.resize(begin + bytes.size() / DtypeBytes(dtype));
  if (dtype == Dtype::kBf16) {
    std::memcpy(out.data() + begin, bytes.data(), bytes.size());
    return;
  }
  for (size_t i = begin; i < out.size(); ++i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + (i - begin) * sizeof(value), sizeof(value));
    out[i] = RoundToBf16(value);
  }
}

std::string_view AsBytes(const uint16_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size * sizeof(uint16_t)};
}

using Entries = std::map<std::string_view, const WeightEntry*>;

Entries ByName(const WeightManifest& manifest) {
  Entries entries;
  for (const WeightEntry& entry : manifest.entries) entries[entry.name] = &entry;
  return entries;
}

// The tensors of `layout` in groups that are written as one file each.
std::vector<std::vector<const ParameterEntry*>> Shards(const ParameterLayout& layout) {
  std::vector<std::vector<const ParameterEntry*>> shards(1);
  int64_t elements = 0;
  for (const ParameterEntry& entry : layout.entries) {
    if (!shards.back().empty() && elements + entry.size > kShardElements) {
      shards.emplace_back();
      elements = 0;
    }
    shards.back().push_back(&entry);
    elements += entry.size;
  }
  return shards;
}

// "model-00001-of-00003.safetensors"
std::string ShardName(size_t shard, size_t count) {
  if (count == 1) return "model.safetensors";
  const auto five = [](size_t n) {
    const std::string digits = StrCat(n);
    return std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
  };
  return StrCat("model-", five(shard + 1), "-of-", five(count), ".safetensors");
}

absl::Status WriteShard(const std::string& path, const WeightSnapshot& snapshot,
                        const Entries& entries, const std::vector<const ParameterEntry*>& shard) {
  std::vector<uint16_t> values;
  std::vector<TensorToWrite> tensors;
  for (const ParameterEntry* expected : shard) {
    const WeightEntry& entry = *entries.at(expected->name);
    const Dtype dtype = *ParseDtype(entry.dtype);
    AppendBf16(BytesOf(snapshot, entry, dtype, expected->size), dtype, values);
  }
  size_t begin = 0;
  for (const ParameterEntry* expected : shard) {
    const auto size = static_cast<size_t>(expected->size);
    const NonFiniteCount found = CountNonFinite(Dtype::kBf16, AsBytes(values.data() + begin, size));
    if (found.count > 0) {
      return Internal("weights of version ", snapshot.manifest.policy.version, ": tensor ",
                      expected->name, " has ", found.count,
                      " values that are not finite as bf16; has the training diverged?");
    }
    tensors.push_back({expected->name, Dtype::kBf16, expected->shape, values.data() + begin,
                       size * sizeof(uint16_t)});
    begin += size;
  }
  return WriteSafetensors(path, tensors, {{"format", "pt"}});
}

}  // namespace

absl::Status CheckServable(const WeightSnapshot& snapshot, const ParameterLayout& layout) {
  const WeightManifest& manifest = snapshot.manifest;
  const int64_t version = manifest.policy.version;
  if (snapshot.bytes == nullptr) return InvalidArgument("weights of version ", version, ": none");
  const Entries entries = ByName(manifest);
  if (manifest.entries.size() != layout.entries.size() || entries.size() != layout.entries.size()) {
    return InvalidArgument("weights of version ", version, ": ", manifest.entries.size(),
                           " tensors, this model has ", layout.entries.size());
  }
  for (const ParameterEntry& expected : layout.entries) {
    const auto found = entries.find(expected.name);
    if (found == entries.end()) {
      return InvalidArgument("weights of version ", version, ": tensor ", expected.name,
                             " is missing");
    }
    const WeightEntry& entry = *found->second;
    if (entry.shape != expected.shape) {
      return InvalidArgument("weights of version ", version, ": tensor ", expected.name,
                             " has shape ", ShapeToString(entry.shape), ", want ",
                             ShapeToString(expected.shape));
    }
    const std::optional<Dtype> dtype = ParseDtype(entry.dtype);
    if (dtype != Dtype::kF32 && dtype != Dtype::kBf16) {
      return InvalidArgument("weights of version ", version, ": tensor ", expected.name,
                             " has dtype ", entry.dtype, ", want F32 or BF16");
    }
    const auto size = static_cast<int64_t>(snapshot.bytes->size());
    const int64_t bytes = expected.size * static_cast<int64_t>(DtypeBytes(*dtype));
    if (entry.offset_bytes < 0 || bytes > size || entry.offset_bytes > size - bytes) {
      return InvalidArgument("weights of version ", version, ": tensor ", expected.name,
                             " ends beyond the ", size, " bytes");
    }
    const NonFiniteCount found_bad =
        CountNonFinite(*dtype, BytesOf(snapshot, entry, *dtype, expected.size));
    if (found_bad.count > 0) {
      return Internal("weights of version ", version, ": tensor ", expected.name, " has ",
                      found_bad.count, " values that are not finite; has the training diverged?");
    }
  }
  return absl::OkStatus();
}

WeightsFolder::WeightsFolder(std::string path, std::string unique, const ModelConfig& model)
    : path_(std::move(path)),
      unique_(std::move(unique)),
      layout_(MakeParameterLayout(model)),
      config_json_(ConfigJson(model)),
      generation_json_(model.GenerationJson()),
      hash_(Sha256Hex(config_json_ + generation_json_).substr(0, 12)) {}

absl::StatusOr<std::unique_ptr<WeightsFolder>> WeightsFolder::Open(const std::string& path,
                                                                   const std::string& unique,
                                                                   const ModelConfig& model) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return FileError(path, error);
  std::unique_ptr<WeightsFolder> folder(new WeightsFolder(path, unique, model));
  const absl::StatusOr<std::string> served = ReadFile(path + "/serve", 1024);
  if (served.ok()) {
    const std::string name = served->substr(0, served->find('\n'));
    if (name.starts_with(folder->hash_ + "-") && name.find('/') == std::string::npos) {
      folder->served_ = name;
      folder->start_ = fs::read_symlink(path + "/" + name, error).string();
    }
  }
  // Whatever else is here belonged to former processes. Directory entries may vanish meanwhile.
  std::vector<std::string> others;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    const bool weights = name.starts_with(kWeights) || name.starts_with(kUnfinished);
    if ((weights && name != folder->start_) || (entry.is_symlink() && name != folder->served_)) {
      others.push_back(entry.path().string());
    }
  }
  if (error) return FileError(path, error);
  const std::string marker = StrCat(path, "/", kMarker);
  if (!others.empty() && !fs::exists(marker, error)) {
    return FailedPrecondition(others.front(), " is not of an engine: give a folder that is empty");
  }
  for (const std::string& other : others) fs::remove_all(other, error);
  FRESHET_RETURN_IF_ERROR(WriteFileAtomically(marker, ""));
  return folder;
}

absl::StatusOr<std::string> WeightsFolder::Write(const WeightSnapshot& snapshot) {
  FRESHET_RETURN_IF_ERROR(CheckServable(snapshot, layout_));
  const std::string name = StrCat(unique_, "-", ++written_);
  const std::string unfinished = StrCat(path_, "/", kUnfinished, name);
  const std::string path = StrCat(path_, "/", kWeights, name);
  std::error_code error;
  fs::create_directory(unfinished, error);
  if (error) return FileError(unfinished, error);
  const auto fill = [&]() -> absl::Status {
    const Entries entries = ByName(snapshot.manifest);
    const std::vector<std::vector<const ParameterEntry*>> shards = Shards(layout_);
    nlohmann::json index = {{"metadata", {{"total_size", 2 * layout_.num_parameters}}}};
    for (size_t i = 0; i < shards.size(); ++i) {
      const std::string file = ShardName(i, shards.size());
      FRESHET_RETURN_IF_ERROR(
          WriteShard(StrCat(unfinished, "/", file), snapshot, entries, shards[i]));
      for (const ParameterEntry* entry : shards[i]) index["weight_map"][entry->name] = file;
    }
    if (shards.size() > 1) {
      FRESHET_RETURN_IF_ERROR(
          WriteFileAtomically(unfinished + "/model.safetensors.index.json", index.dump()));
    }
    FRESHET_RETURN_IF_ERROR(
        WriteFileAtomically(unfinished + "/generation_config.json", generation_json_));
    FRESHET_RETURN_IF_ERROR(WriteFileAtomically(unfinished + "/config.json", config_json_));
    fs::rename(unfinished, path, error);
    return error ? FileError(path, error) : absl::OkStatus();
  };
  const absl::Status filled = fill();
  if (!filled.ok()) {
    fs::remove_all(unfinished, error);
    return filled;
  }
  return path;
}

absl::StatusOr<std::string> WeightsFolder::Restart(const std::string& weights) {
  const std::string former = served_;
  served_ = StrCat(hash_, "-", unique_, ".", ++restarts_);
  FRESHET_RETURN_IF_ERROR(StartWith(weights));
  FRESHET_RETURN_IF_ERROR(WriteFileAtomically(path_ + "/serve", served_ + "\n"));
  std::error_code ignored;
  if (!former.empty()) fs::remove(path_ + "/" + former, ignored);
  return served_;
}

absl::Status WeightsFolder::StartWith(const std::string& weights) {
  const std::string target = fs::path(weights).filename().string();
  const std::string unfinished = StrCat(path_, "/.link-", unique_);
  std::error_code error;
  fs::remove(unfinished, error);
  fs::create_symlink(target, unfinished, error);
  if (!error) fs::rename(unfinished, path_ + "/" + served_, error);
  if (error) return FileError(path_, error);
  start_ = target;
  return absl::OkStatus();
}

void WeightsFolder::KeepOnly(const std::vector<std::string>& weights) {
  std::error_code error;
  std::vector<std::string> others;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kWeights) || name == start_) continue;
    if (std::ranges::find(weights, path_ + "/" + name) == weights.end()) {
      others.push_back(entry.path().string());
    }
  }
  for (const std::string& other : others) fs::remove_all(other, error);
}

}  // namespace freshet
