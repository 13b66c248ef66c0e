#include "trainer/checkpoint.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "model/safetensors.h"
#include "nlohmann/json.hpp"
#include "services/base/digest.h"
#include "services/base/file.h"
#include "services/base/log.h"
#include "services/base/status_macros.h"
#include "services/base/str_cat.h"

namespace freshet {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kManifest[] = "manifest.json";
constexpr char kState[] = "trainer_state.json";
constexpr char kStepPrefix[] = "step-";
constexpr char kSetAside[] = "replaced-";
constexpr uint64_t kMaxJsonBytes = 64 << 20;

std::vector<TensorToWrite> TensorsToWrite(const std::vector<TensorCopy>& tensors) {
  std::vector<TensorToWrite> out;
  out.reserve(tensors.size());
  for (const TensorCopy& tensor : tensors) {
    out.push_back(
        {tensor.name, tensor.dtype, tensor.shape, tensor.bytes.data(), tensor.bytes.size()});
  }
  return out;
}

Json StateToJson(const CheckpointContents& contents) {
  const TrainingState& state = contents.state;
  return {{"format", 1},
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

absl::StatusOr<Json> ReadJson(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxJsonBytes);
  if (!text.ok()) return DataLoss(Message(text.status()));
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) return DataLoss(path, ": not a JSON object");
  return json;
}

absl::Status WriteFiles(const fs::path& dir, const CheckpointContents& contents) {
  for (const auto& [name, text] : contents.files) {
    FRESHET_RETURN_IF_ERROR(WriteFileAtomically((dir / name).string(), text));
  }
  FRESHET_RETURN_IF_ERROR(WriteSafetensors((dir / "model.safetensors").string(),
                                           TensorsToWrite(contents.learner->model),
                                           {{"format", "pt"}}));
  FRESHET_RETURN_IF_ERROR(WriteSafetensors((dir / "optimizer.safetensors").string(),
                                           TensorsToWrite(contents.learner->optimizer), {}));
  return WriteFileAtomically((dir / kState).string(), StateToJson(contents).dump(1) + "\n");
}

// What a manifest says beside its list of files.
Json ManifestHead(const TrainingState& state) {
  return {{"format", 1},
          {"job", state.job},
          {"step", state.policy.version},
          {"lineage", state.policy.lineage},
          {"version", state.policy.version},
          {"digest", state.digest}};
}
bool HasHead(const Json& manifest, const TrainingState& state) {
  const Json head = ManifestHead(state);
  return std::all_of(head.items().begin(), head.items().end(), [&](const auto& item) {
    return manifest.contains(item.key()) && manifest.at(item.key()) == item.value();
  });
}

// Writes manifest.json over the files of `dir` and returns its SHA-256.
absl::StatusOr<std::string> WriteManifest(const fs::path& dir, const TrainingState& state) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(dir)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  Json files = Json::array();
  for (const fs::path& path : paths) {
    FRESHET_ASSIGN_OR_RETURN(const std::string sha256, Sha256File(path.string()));
    files.push_back(
        {{"name", path.filename().string()}, {"bytes", fs::file_size(path)}, {"sha256", sha256}});
  }
  Json manifest = ManifestHead(state);
  manifest["files"] = files;
  const std::string text = manifest.dump(1) + "\n";
  FRESHET_RETURN_IF_ERROR(WriteFileAtomically((dir / kManifest).string(), text));
  FRESHET_RETURN_IF_ERROR(SyncPath(dir.string()));
  return Sha256Hex(text);
}

// A checkpoint that is there already is exchanged for the new one, so that there is one at every
// moment: a former trainer may still be writing what its successor has made durable. Nor is one
// touched when `temporary` is gone, as the successor of a trainer that was stopped leaves it.
absl::Status MoveIntoPlace(const fs::path& temporary, const fs::path& target) {
  const auto rename = [&](unsigned flags) {
    return ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), flags) == 0;
  };
  std::error_code error;
  if (rename(RENAME_NOREPLACE)) return absl::OkStatus();
  if (errno == EEXIST && rename(RENAME_EXCHANGE)) {
    fs::remove_all(temporary, error);
    return absl::OkStatus();
  }
  const bool unsupported = errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP;
  if (!unsupported) return WriteError(target.string(), errno);
  // A file system that knows neither.
  if (!fs::exists(temporary, error)) return WriteError(target.string(), ENOENT);
  fs::remove_all(target, error);
  fs::rename(temporary, target, error);
  return error ? WriteError(target.string(), error.value()) : absl::OkStatus();
}

absl::StatusOr<std::string> WriteUnderTemporaryName(
    const fs::path& root, const fs::path& temporary, const CheckpointContents& contents,
    const std::function<absl::Status()>& before_rename, FaultPoints& faults) {
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::create_directories(temporary, error);
  if (error) return WriteError(temporary.string(), error.value());
  FRESHET_RETURN_IF_ERROR(WriteFiles(temporary, contents));
  faults.Reach("checkpoint_write");
  FRESHET_ASSIGN_OR_RETURN(std::string sha256, WriteManifest(temporary, contents.state));
  FRESHET_RETURN_IF_ERROR(before_rename());
  faults.Reach("checkpoint_rename");
  const fs::path target = root / StrCat(kStepPrefix, contents.state.policy.version);
  FRESHET_RETURN_IF_ERROR(MoveIntoPlace(temporary, target));
  FRESHET_RETURN_IF_ERROR(SyncPath(root.string()));
  return sha256;
}

absl::StatusOr<TrainingState> ReadState(const std::string& path, int64_t& optimizer_steps) {
  FRESHET_ASSIGN_OR_RETURN(const Json json, ReadJson(path));
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
    return DataLoss(path, ": ", error.what());
  }
}

absl::Status VerifyFiles(const fs::path& dir, const Json& manifest) {
  try {
    for (const Json& file : manifest.at("files")) {
      const auto name = file.at("name").get<std::string>();
      const fs::path path = dir / fs::path(name).filename();
      std::error_code error;
      const auto bytes = fs::file_size(path, error);
      if (error) return DataLoss(path.string(), ": listed in ", kManifest, " but missing");
      if (bytes != file.at("bytes").get<uint64_t>()) {
        return DataLoss(path.string(), ": ", bytes, " bytes, ", kManifest, " says ",
                        file.at("bytes").get<uint64_t>());
      }
      FRESHET_ASSIGN_OR_RETURN(const std::string sha256, Sha256File(path.string()));
      if (sha256 != file.at("sha256").get<std::string>()) {
        return DataLoss(path.string(), ": SHA-256 differs from ", kManifest);
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return DataLoss((dir / kManifest).string(), ": ", error.what());
  }
  return absl::OkStatus();
}

// Directories ROOT/step-N, with `prefix` before the name, newest number first.
std::vector<std::pair<int64_t, fs::path>> ListSteps(const std::string& root,
                                                    std::string_view prefix = "") {
  std::vector<std::pair<int64_t, fs::path>> steps;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    name.erase(0, prefix.size());
    long long number = -1;
    int used = 0;
    if (std::sscanf(name.c_str(), "step-%lld%n", &number, &used) == 1 &&
        static_cast<size_t>(used) == name.size() && number >= 0) {
      steps.emplace_back(number, entry.path());
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

// Out of sight first: a half-deleted directory must not look like a checkpoint.
absl::Status RemoveStep(const std::string& root, int64_t step, const fs::path& path) {
  const fs::path doomed = fs::path(root) / StrCat(".", kStepPrefix, step, ".tmp");
  std::error_code error;
  fs::remove_all(doomed, error);
  fs::rename(path, doomed, error);
  fs::remove_all(doomed, error);
  return error ? WriteError(path.string(), error.value()) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> WriteCheckpoint(const std::string& root,
                                            const CheckpointContents& contents,
                                            const std::function<absl::Status()>& before_rename,
                                            FaultPoints& faults) {
  const fs::path temporary =
      fs::path(root) / StrCat(".", kStepPrefix, contents.state.policy.version, ".epoch-",
                              contents.state.epoch, ".tmp");
  absl::StatusOr<std::string> sha256;
  try {
    sha256 = WriteUnderTemporaryName(root, temporary, contents, before_rename, faults);
  } catch (const std::exception& error) {
    sha256 = FailedPrecondition(temporary.string(), ": ", error.what());
  }
  if (!sha256.ok()) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
  }
  return sha256;
}

absl::StatusOr<FoundCheckpoint> OpenCheckpoint(const std::string& path) {
  const fs::path dir(path);
  const std::string manifest_path = (dir / kManifest).string();
  FRESHET_ASSIGN_OR_RETURN(const Json manifest, ReadJson(manifest_path));
  FRESHET_RETURN_IF_ERROR(VerifyFiles(dir, manifest));
  FoundCheckpoint found;
  found.path = path;
  FRESHET_ASSIGN_OR_RETURN(found.manifest_sha256, Sha256File(manifest_path));
  FRESHET_ASSIGN_OR_RETURN(found.state, ReadState((dir / kState).string(), found.optimizer_steps));
  if (!HasHead(manifest, found.state)) {
    return DataLoss(manifest_path, ": job, step, lineage or digest differ from ", kState);
  }
  return found;
}

absl::StatusOr<std::vector<FoundCheckpoint>> FindAllCheckpoints(const std::string& root,
                                                                const std::string& job) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".step-") && name.ends_with(".tmp")) {
      std::error_code ignored;
      fs::remove_all(entry.path(), ignored);
    }
  }
  std::vector<FoundCheckpoint> checkpoints;
  for (const auto& [step, path] : ListSteps(root)) {
    absl::StatusOr<FoundCheckpoint> found = OpenCheckpoint(path.string());
    if (!found.ok()) {
      FRESHET_LOG(Warning) << "event=checkpoint_skipped reason="
                           << LogQuoted(Message(found.status()));
      continue;
    }
    if (found->state.job != job) {
      return FailedPrecondition(path.string(), ": belongs to job \"", found->state.job,
                                "\", not to \"", job, "\"");
    }
    checkpoints.push_back(*std::move(found));
  }
  std::sort(checkpoints.begin(), checkpoints.end(),
            [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
              return b.state.policy < a.state.policy;
            });
  return checkpoints;
}

absl::StatusOr<std::optional<FoundCheckpoint>> FindNewestCheckpoint(const std::string& root,
                                                                    const std::string& job) {
  FRESHET_ASSIGN_OR_RETURN(std::vector<FoundCheckpoint> found, FindAllCheckpoints(root, job));
  if (found.empty()) return std::optional<FoundCheckpoint>();
  return std::optional<FoundCheckpoint>(std::move(found.front()));
}

absl::Status SetAsideCheckpoint(const std::string& path) {
  const fs::path from(path);
  const fs::path aside = from.parent_path() / (kSetAside + from.filename().string());
  std::error_code error;
  fs::remove_all(aside, error);
  fs::rename(from, aside, error);
  return error ? WriteError(path, error.value()) : absl::OkStatus();
}

absl::Status PruneCheckpoints(const std::string& root, int64_t newest, int64_t keep_last,
                              std::optional<int64_t> always_keep) {
  int64_t kept = 0;
  for (const auto& [step, path] : ListSteps(root)) {
    if (step > newest) continue;
    if (kept < keep_last) {
      ++kept;
    } else if (always_keep != step) {
      FRESHET_RETURN_IF_ERROR(RemoveStep(root, step, path));
    }
  }
  for (const auto& [step, path] : ListSteps(root, kSetAside)) {
    if (step <= newest) FRESHET_RETURN_IF_ERROR(RemoveStep(root, step, path));
  }
  return absl::OkStatus();
}

}  // namespace freshet
