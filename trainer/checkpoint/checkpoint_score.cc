#include "trainer/checkpoint/checkpoint_score.h"

#include <cmath>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/json_document.h"
#include "base/str_cat.h"
#include "trainer/checkpoint/checkpoint_folder.h"

namespace freshet {
namespace {

constexpr char kFile[] = "/evaluation.json";
constexpr uint64_t kMaxBytes = 64 << 10;

// A number of evaluation.json; nothing if it is missing or malformed.
std::optional<double> ReadNumber(const std::string& path, const char* name) {
  const absl::StatusOr<std::string> text = ReadFile(path + kFile, kMaxBytes);
  if (!text.ok()) return std::nullopt;
  const absl::StatusOr<nlohmann::json> json = ParseJson(*text, path + kFile);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  std::vector<std::string> errors;
  const double number = JsonFields(*json, path, errors).Number(name, NAN);
  if (!errors.empty() || !std::isfinite(number)) return std::nullopt;
  return number;
}

}  // namespace

absl::Status RecordScore(const std::string& root, const CheckpointScore& score) {
  const std::string path = CheckpointPath(root, score.checkpoint);
  const absl::StatusOr<CheckpointManifest> manifest = ReadCheckpointManifest(path);
  if (absl::IsUnavailable(manifest.status())) return manifest.status();
  if (!manifest.ok()) return NotFound(path, ": no complete checkpoint");
  if (manifest->policy.lineage > score.policy.lineage) {
    return NotFound(path, ": of a newer lineage than the evaluated version");
  }
  const auto version = static_cast<double>(score.policy.version);
  if (ReadNumber(path, "policy_version").value_or(version) < version) return absl::OkStatus();
  const nlohmann::ordered_json json = {{"eval_name", score.eval_name},
                                       {"eval_accuracy", score.accuracy},
                                       {"policy_version", score.policy.version},
                                       {"lineage", score.policy.lineage}};
  return WriteFileAtomically(path + kFile, json.dump(2) + "\n");
}

std::optional<double> ReadScore(const std::string& path) {
  return ReadNumber(path, "eval_accuracy");
}

}  // namespace freshet
