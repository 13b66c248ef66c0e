#include "trainer/checkpoint/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/digest.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/str_cat.h"
#include "model/safetensors.h"
#include "nlohmann/json.hpp"

namespace freshet {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Format 2 has master weights, without which a resume from bf16 weights would lose precision.
// Checkpoints of fp32 weights stay readable by programs that know only format 1.
constexpr int kFp32Format = 1;
constexpr int kMastersFormat = 2;
constexpr char kManifest[] = "manifest.json";
constexpr char kModel[] = "model.safetensors";
constexpr char kOptimizer[] = "optimizer.safetensors";
constexpr char kState[] = "trainer_state.json";
constexpr const char* kRequired[] = {"config.json", kModel, kOptimizer, kState};
constexpr uint64_t kMaxJsonBytes = 64 << 20;

// Pointers into `tensors`.
absl::StatusOr<std::vector<TensorToWrite>> TensorsToWrite(const std::vector<StateTensor>& tensors) {
  std::vector<TensorToWrite> out;
  out.reserve(tensors.size());
  for (const StateTensor& tensor : tensors) {
    TensorToWrite& to_write = out.emplace_back();
    to_write.name = tensor.name;
    to_write.dtype = tensor.dtype;
    to_write.shape = tensor.shape;
    FRESHET_ASSIGN_OR_RETURN(to_write.bytes, TensorBytes(tensor.dtype, tensor.shape));
    to_write.fetch = [&tensor] { return tensor.Read(); };
  }
  return out;
}

int FormatOf(const CheckpointContents& contents) {
  return contents.weights_dtype == Dtype::kF32 ? kFp32Format : kMastersFormat;
}

// The tensors of model.safetensors and optimizer.safetensors. Pointers into the LearnerState.
struct CheckpointTensors {
  std::vector<TensorToWrite> model;
  std::vector<TensorToWrite> optimizer;
};

absl::StatusOr<CheckpointTensors> TensorsOf(const CheckpointContents& contents) {
  CheckpointTensors tensors;
  FRESHET_ASSIGN_OR_RETURN(tensors.model, TensorsToWrite(contents.learner->model));
  FRESHET_ASSIGN_OR_RETURN(tensors.optimizer, TensorsToWrite(contents.learner->optimizer));
  if (contents.weights_dtype != Dtype::kBf16) return tensors;
  for (TensorToWrite& tensor : tensors.model) {
    TensorToWrite& master = tensors.optimizer.emplace_back(tensor);
    master.name = StrCat(kMasterPrefix, tensor.name);
    tensor.as_bf16 = true;
  }
  return tensors;
}

Json StateToJson(const CheckpointContents& contents) {
  const TrainingState& state = contents.state;
  return {{"format", FormatOf(contents)},
          {"job", state.job},
          {"lineage", state.policy.lineage},
          {"version", state.policy.version},
          {"epoch", state.epoch},
          {"seed", state.seed},
          {"digest", state.digest},
          {"prompt_low_water", state.cursor.low_water},
          {"prompts_ended_above", state.cursor.above},
          {"optimizer_steps", contents.learner->optimizer_steps}};
}

// Status for a file that could not be read: DATA_LOSS if it is missing, otherwise UNAVAILABLE,
// because a disk error may be transient.
absl::Status ReadFault(const fs::path& path, const std::string& message) {
  std::error_code error;
  if (!fs::exists(path, error) && !error) return DataLoss(path.string(), ": missing");
  return StatusOf(absl::StatusCode::kUnavailable, message);
}

absl::StatusOr<std::string> ReadText(const fs::path& path) {
  absl::StatusOr<std::string> text = ReadFile(path.string(), kMaxJsonBytes);
  if (text.ok()) return text;
  if (absl::IsInvalidArgument(text.status())) return DataLoss(Message(text.status()));
  return ReadFault(path, Message(text.status()));
}

absl::StatusOr<Json> ParseObject(const fs::path& path, const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object())
    return DataLoss(path.string(), ": not a JSON object");
  return json;
}

absl::Status WriteFiles(const fs::path& dir, const CheckpointContents& contents) {
  for (const auto& [name, text] : contents.files) {
    FRESHET_RETURN_IF_ERROR(WriteFileAtomically((dir / name).string(), text));
  }
  FRESHET_ASSIGN_OR_RETURN(const CheckpointTensors tensors, TensorsOf(contents));
  FRESHET_RETURN_IF_ERROR(
      WriteSafetensors((dir / kModel).string(), tensors.model, {{"format", "pt"}}));
  FRESHET_RETURN_IF_ERROR(WriteSafetensors((dir / kOptimizer).string(), tensors.optimizer, {}));
  return WriteFileAtomically((dir / kState).string(), StateToJson(contents).dump(1) + "\n");
}

// Writes manifest.json for the files that WriteFiles has written and returns its SHA-256.
absl::StatusOr<std::string> WriteManifest(const fs::path& dir, const CheckpointContents& contents) {
  std::vector<std::string> names = {kModel, kOptimizer, kState};
  for (const auto& [name, text] : contents.files) names.push_back(name);
  std::sort(names.begin(), names.end());
  Json files = Json::array();
  for (const std::string& name : names) {
    const fs::path path = dir / name;
    FRESHET_ASSIGN_OR_RETURN(const std::string sha256, Sha256File(path.string()));
    files.push_back({{"name", name}, {"bytes", fs::file_size(path)}, {"sha256", sha256}});
  }
  const TrainingState& state = contents.state;
  const Json manifest = {{"format", FormatOf(contents)},          {"job", state.job},
                         {"step", state.policy.version},          {"lineage", state.policy.lineage},
                         {"version", state.policy.version},       {"digest", state.digest},
                         {"writer_epoch", contents.writer_epoch}, {"files", files}};
  const std::string text = manifest.dump(1) + "\n";
  FRESHET_RETURN_IF_ERROR(WriteFileAtomically((dir / kManifest).string(), text));
  return Sha256Hex(text);
}

absl::StatusOr<CheckpointManifest> ParseManifest(const fs::path& path, const std::string& text) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseObject(path, text));
  CheckpointManifest manifest;
  try {
    const auto format = json.at("format").get<int64_t>();
    if (format != kFp32Format && format != kMastersFormat) {
      return FailedPrecondition(path.string(), ": format ", format, ", this program reads formats ",
                                kFp32Format, " and ", kMastersFormat);
    }
    manifest.job = json.at("job").get<std::string>();
    manifest.policy = {json.at("lineage").get<int64_t>(), json.at("version").get<int64_t>()};
    manifest.digest = json.at("digest").get<std::string>();
    manifest.writer_epoch = json.value("writer_epoch", int64_t{0});
    if (json.at("step").get<int64_t>() != manifest.policy.version) {
      return DataLoss(path.string(), ": step and version differ");
    }
    for (const Json& file : json.at("files")) {
      manifest.files.push_back({file.at("name").get<std::string>(),
                                file.at("bytes").get<uint64_t>(),
                                file.at("sha256").get<std::string>()});
      const std::string& name = manifest.files.back().name;
      if (name.empty() || fs::path(name).filename() != name || name == "." || name == "..") {
        return DataLoss(path.string(), ": names a file outside of its directory");
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return DataLoss(path.string(), ": ", error.what());
  }
  for (const char* required : kRequired) {
    const bool listed = std::any_of(manifest.files.begin(), manifest.files.end(),
                                    [&](const auto& file) { return file.name == required; });
    if (!listed) return DataLoss(path.string(), ": does not list ", required);
  }
  manifest.sha256 = Sha256Hex(text);
  manifest.bytes = text.size();
  return manifest;
}

absl::StatusOr<TrainingState> ReadState(const fs::path& path, int64_t& optimizer_steps) {
  FRESHET_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  FRESHET_ASSIGN_OR_RETURN(const Json json, ParseObject(path, text));
  try {
    TrainingState state;
    state.job = json.at("job").get<std::string>();
    state.policy = {json.at("lineage").get<int64_t>(), json.at("version").get<int64_t>()};
    state.epoch = json.at("epoch").get<int64_t>();
    state.seed = json.at("seed").get<uint64_t>();
    state.digest = json.at("digest").get<std::string>();
    state.cursor.low_water = json.at("prompt_low_water").get<int64_t>();
    state.cursor.above = json.at("prompts_ended_above").get<std::vector<int64_t>>();
    optimizer_steps = json.at("optimizer_steps").get<int64_t>();
    return state;
  } catch (const nlohmann::json::exception& error) {
    return DataLoss(path.string(), ": ", error.what());
  }
}

}  // namespace

absl::StatusOr<CheckpointManifest> ReadCheckpointManifest(const std::string& path) {
  const fs::path manifest = fs::path(path) / kManifest;
  FRESHET_ASSIGN_OR_RETURN(const std::string text, ReadText(manifest));
  return ParseManifest(manifest, text);
}

absl::StatusOr<CheckpointManifest> InspectCheckpoint(const std::string& path) {
  FRESHET_ASSIGN_OR_RETURN(CheckpointManifest manifest, ReadCheckpointManifest(path));
  for (const CheckpointManifest::File& file : manifest.files) {
    const fs::path file_path = fs::path(path) / file.name;
    std::error_code error;
    const auto bytes = fs::file_size(file_path, error);
    if (error) return ReadFault(file_path, StrCat(file_path.string(), ": ", error.message()));
    if (bytes != file.bytes) {
      return DataLoss(file_path.string(), ": ", bytes, " bytes, ", kManifest, " says ", file.bytes);
    }
  }
  return manifest;
}

absl::StatusOr<FoundCheckpoint> OpenCheckpoint(const std::string& path) {
  FRESHET_ASSIGN_OR_RETURN(const CheckpointManifest manifest, InspectCheckpoint(path));
  const fs::path dir(path);
  for (const CheckpointManifest::File& file : manifest.files) {
    const fs::path file_path = dir / file.name;
    const absl::StatusOr<std::string> sha256 = Sha256File(file_path.string());
    if (!sha256.ok()) return ReadFault(file_path, Message(sha256.status()));
    if (*sha256 != file.sha256) {
      return DataLoss(file_path.string(), ": SHA-256 differs from ", kManifest);
    }
  }
  FoundCheckpoint found;
  found.path = path;
  found.manifest_sha256 = manifest.sha256;
  found.writer_epoch = manifest.writer_epoch;
  FRESHET_ASSIGN_OR_RETURN(found.state, ReadState(dir / kState, found.optimizer_steps));
  if (manifest.job != found.state.job || manifest.policy != found.state.policy ||
      manifest.digest != found.state.digest) {
    return DataLoss((dir / kManifest).string(), ": job, step, lineage or digest differ from ",
                    kState);
  }
  return found;
}

absl::StatusOr<std::string> FillCheckpoint(const std::string& path, CheckpointContents contents,
                                           FaultPoints& faults) {
  FRESHET_RETURN_IF_ERROR(WriteFiles(path, contents));
  contents.learner = nullptr;
  faults.Reach("checkpoint_write");
  FRESHET_ASSIGN_OR_RETURN(std::string sha256, WriteManifest(path, contents));
  FRESHET_RETURN_IF_ERROR(SyncPath(path));
  return sha256;
}

}  // namespace freshet
